// Rows on request with threads and the wall clock: several lock-free workers per trainer learn, use every
// sample once and reach every row's owner; a trainer that dies or hangs ends the run under its name.
#include "rows_world.hpp"

namespace tenon::sync_test::rows_threads_test {
namespace {

using ::testing::HasSubstr;

const char* const kStrategies[] = {
    "{type = 'shadow_easgd'}",
    "{type = 'shadow_easgd', mode = 'foreground', interval = 5}",
    "{type = 'shadow_ma', rest = 0.002}",
    "{type = 'shadow_bmuf', momentum = 0.2, merge_lock = 'per_shard'}",
};

World threads(const std::string& strategy) {
  World world = on_request(clicks_world(2),
                           {"parallel.workers=2", "run.eval_every=50", "observe=[{type=\"counts_rows\"}]",
                            "recovery={type=\"full\", every=60, async=false}"});
  world.slots = 150;
  if (strategy.find("easgd") != std::string::npos) world.sets.emplace_back("parallel.servers=1");
  return world;
}

TEST(RowsThreads, LearnWithLockFreeWorkersAndUseEverySampleOnce) {
  for (const std::string strategy : kStrategies) {
    const World world = threads(strategy);
    const Outcome run = train_clicks(strategy, world);
    ASSERT_EQ(run.result.error, "") << strategy;
    EXPECT_LT(run.result.metrics.at("val/loss"), 0.62) << strategy << ": from 0.69";
    EXPECT_EQ(clicks.reads.size(), 300u) << strategy;
    for (const auto& [first, times] : clicks.reads) EXPECT_EQ(times, 1) << strategy << first;
    // Every lookup of every sample was an update of its row, at the rank that owns it.
    EXPECT_EQ(clicks.accesses.at(0) + clicks.accesses.at(1), 300 * kBatch * kTables) << strategy;
    EXPECT_GT(clicks.accesses.at(0), 0);
    EXPECT_GT(clicks.accesses.at(1), 0);
    EXPECT_GT(run.result.distributions.at("sync_gap").count, 0u) << strategy;
    EXPECT_THAT(run.result.nondeterminism, HasSubstr("2 workers"));
  }
}

TEST(RowsThreads, AFailureEndsAllUnderItsName) {
  for (const std::string strategy : kStrategies) {
    for (const char* phase : {"slot", "forward", "collective"}) {
      World world = threads(strategy);
      world.sets.push_back(std::string("fault=[{rank=1, step=9, kind=\"crash\", phase=\"") + phase + "\"}]");
      world.sets.emplace_back("run.steps=100000");
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_THAT(refusal_of_clicks(strategy, world), HasSubstr("rank 1: ")) << strategy << phase;
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    }
  }
}

// Its actors still answer: the others notice it when they stand still for an evaluation.
TEST(RowsThreads, AHangIsNamedWithinTheDeadline) {
  World world = threads("none");
  world.sets.insert(world.sets.end(),
                    {"parallel.workers=1", "run.deadline=2", "fault=[{rank=1, step=9, kind=\"hang\"}]"});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(refusal_of_clicks("{type = 'none'}", world),
              ::testing::AllOf(HasSubstr("rank 1 did not join"), HasSubstr("rows.still")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

// Replica 0 reaches and leaves a boundary long before replica 1: its copies must hold replica 1's earlier
// updates, and replica 1's copies no later ones. Replicas read rows of their own, so bits do not depend on
// timing.
TEST(RowsThreads, SaveWhatAllDidBeforeTheBoundaryAndNoMore) {
  World world = on_request(clicks_world(2, "disjoint = 2\n"),
                           {"recovery={type=\"full\", every=6, keep=100, async=true}"});
  world.slots = 18;
  world.optimizer = "type = \"sgd\"\nlr = 0.5\n";
  const std::string strategy = "{type = 'comes_late', inner = {type = 'none'}}";
  const integration::Scratch scratch;
  const std::string folder = (scratch / "run").string();
  const RunResult whole = train_clicks(strategy, world, folder).result;
  ASSERT_EQ(whole.error, "");
  // A save that is due while another is being written is skipped.
  for (const char* step : {"step-18", "step-12"})
    std::filesystem::remove_all(scratch / "run/1/checkpoints" / step);
  ASSERT_TRUE(std::filesystem::exists(scratch / "run/1/checkpoints/step-6"));
  const RunResult resumed = train_clicks(strategy, world, folder, true).result;
  EXPECT_EQ(resumed.error, "");
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
}

TEST(RowsThreads, EndWhenTheirTimeIsSpent) {
  for (const std::string strategy : kStrategies) {
    World world = threads(strategy);
    world.slots = 1000000;
    world.sets.insert(world.sets.end(), {"run.max_seconds=0.4", "run.eval_every=0"});
    const RunResult run = train_clicks(strategy, world).result;
    EXPECT_EQ(run.error, "") << strategy;
    EXPECT_GT(run.steps, 1);
  }
}

}  // namespace
}  // namespace tenon::sync_test::rows_threads_test
