// Rows on request ([parallel] rows = "request"): where both must agree they have the bits of rows in step;
// under the simulated clock they repeat, resume, count their bytes, and let replicas train at their own pace.
#include "rows_world.hpp"

#include <set>

namespace tenon::sync_test::rows_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSimulated =
    "transport.clock={type=\"simulated\", compute_seconds=0.01, optimizer_seconds=0.001}";
constexpr const char* kLink = "transport.link={bandwidth=12.5e6, latency=1e-4, jitter=1e-5}";

std::vector<std::string> bits(const RunResult& result) {
  EXPECT_EQ(result.error, "");
  return {result.weights_hash, result.state_hash, std::to_string(result.metrics.at("val/loss"))};
}

TEST(Rows, OnRequestHaveTheBitsOfOneReplicaInStep) {
  EXPECT_EQ(bits(train_clicks("{type = 'none'}", on_request(clicks_world(1))).result),
            bits(train_clicks("{type = 'none'}", clicks_world(1)).result));
}

// In step a row moves by the mean of the gradients of K replicas, on request by that of each alone. For rows
// that one replica reads the mean is a K-th of it, exact for powers of two. Real threads: their timing does
// not show.
TEST(Rows, OnRequestHaveTheBitsOfStepWhereReplicasReadDisjointRows) {
  for (const int replicas : {2, 4}) {
    World world = clicks_world(replicas, "disjoint = " + std::to_string(replicas) + "\n");
    world.sets = {"schedule={type=\"cosine\", warmup=4}", "run.eval_every=7", "run.accumulate=2"};
    const auto optimizer = [](double share) {
      return "type = \"row_share\"\ninner = {type = \"sgd\", lr = 0.5}\nrow_share = " +
             std::to_string(share) + "\n";
    };
    world.optimizer = optimizer(1);
    const RunResult step = train_clicks("{type = 'none'}", world).result;
    world.optimizer = optimizer(1.0 / replicas);
    const RunResult request = train_clicks("{type = 'none'}", on_request(world)).result;
    EXPECT_EQ(bits(request), bits(step)) << replicas;
    EXPECT_THAT(request.nondeterminism, HasSubstr("read and updated on request"));
  }
}

// A strategy that skips a rank's turn now and then, workers that share weights, jitter, a slow trainer.
TEST(Rows, OnRequestRepeatUnderTheSimulatedClock) {
  for (const std::string strategy : {"{type = 'none'}", "{type = 'shadow_easgd'}", "{type = 'shadow_ma'}"}) {
    World world = on_request(clicks_world(3), {kSimulated, kLink, "parallel.workers=2", "run.eval_every=9",
                                               "transport.straggler=[{ranks=[1], kind=\"factor\", "
                                               "factor=1.7}]"});
    if (strategy.find("easgd") != std::string::npos) world.sets.emplace_back("parallel.servers=1");
    const RunResult first = train_clicks(strategy, world).result;
    const RunResult second = train_clicks(strategy, world).result;
    EXPECT_EQ(bits(first), bits(second)) << strategy;
    EXPECT_EQ(first.bytes_by_purpose, second.bytes_by_purpose);
    EXPECT_EQ(first.wall_s, second.wall_s);
    EXPECT_EQ(first.nondeterminism,
              "not checked: a slot whose rows other replicas hold cannot be repeated by itself");
    world.seed = 2;
    EXPECT_NE(bits(first), bits(train_clicks(strategy, world).result));
  }
}

TEST(Rows, OnRequestServeTwentyTrainers) {
  World world = on_request(clicks_world(20), {kSimulated, kLink, "parallel.servers=1"});
  world.slots = 4;
  const RunResult first = train_clicks("{type = 'shadow_easgd'}", world).result;
  EXPECT_EQ(clicks.reads.size(), 80u);
  EXPECT_EQ(bits(first), bits(train_clicks("{type = 'shadow_easgd'}", world).result));
}

/// Bytes that leave each rank for lookups and for gradients in slots [begin, end) of a run without bags of
/// several rows (docs in the layer's README).
struct Bytes {
  std::vector<std::uint64_t> model, gradient;
};
Bytes closed_form(int replicas, std::int64_t begin, std::int64_t end) {
  constexpr std::uint64_t kHeader = 48;
  Bytes bytes{std::vector<std::uint64_t>(replicas), std::vector<std::uint64_t>(replicas)};
  for (std::int64_t slot = begin; slot < end; ++slot) {
    for (std::int64_t client = 0; client < replicas; ++client) {
      const std::vector<std::int32_t>& ids = clicks.ids.at((slot * replicas + client) * kBatch);
      std::vector<std::uint64_t> bags(replicas);
      std::vector<std::set<std::pair<std::size_t, std::int32_t>>> rows(replicas);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::size_t owner = ids[i] / (kRowsOfTable / replicas);
        ++bags[owner];
        rows[owner].insert({i % kTables, ids[i]});
      }
      for (std::size_t owner = 0; owner < bags.size(); ++owner) {
        if (owner == static_cast<std::size_t>(client) || bags[owner] == 0) continue;
        const std::size_t from = client;
        bytes.model[from] += kHeader + 4 * (kTables + 2 * bags[owner]) + kHeader;
        bytes.model[owner] += 4 * kWidth * bags[owner];
        bytes.gradient[from] += 8 * kTables + rows[owner].size() * (8 + 4 + 4 * kWidth);
      }
    }
  }
  return bytes;
}

// T21: two runs that differ only in length, so evaluation and the end cancel out.
TEST(Rows, OnRequestSendTheBytesOfTheClosedForm) {
  const auto purpose = [](const RunResult& result, std::size_t rank, const char* name) {
    return result.communication.at(rank).purposes.at(name).bytes_sent;
  };
  for (const int replicas : {2, 3}) {
    World world = on_request(clicks_world(replicas));
    world.slots = 5;
    const RunResult brief = train_clicks("{type = 'none'}", world).result;
    ASSERT_EQ(brief.error, "");
    world.slots = 17;
    const RunResult whole = train_clicks("{type = 'none'}", world).result;
    ASSERT_EQ(whole.error, "");
    const Bytes expected = closed_form(replicas, 5, 17);
    for (std::size_t rank = 0; rank < expected.model.size(); ++rank) {
      EXPECT_EQ(purpose(whole, rank, "model") - purpose(brief, rank, "model"), expected.model[rank]) << rank;
      EXPECT_EQ(purpose(whole, rank, "gradient") - purpose(brief, rank, "gradient"), expected.gradient[rank]);
    }
  }
}

// A checkpoint does not depend on trainers' own timing: they stand still there and begin together after it.
TEST(Rows, OnRequestResumeToTheSameBits) {
  for (const std::string strategy :
       {"{type = 'none'}", "{type = 'shadow_ma', mode = 'stepped', interval = 5}",
        "{type = 'shadow_bmuf', mode = 'foreground', interval = 4, momentum = 0.3}",
        "{type = 'palsgd', interval = 8, warmup = 0, p = 0.25}"}) {
    World world = on_request(clicks_world(3),
                             {kSimulated, kLink, "recovery={type=\"full\", every=6, keep=100, async=false}",
                              "transport.straggler=[{ranks=[2], kind=\"factor\", factor=1.5}]"});
    const integration::Scratch scratch;
    const std::string folder = (scratch / "run").string();
    const RunResult whole = train_clicks(strategy, world, folder).result;
    for (const char* step : {"step-24", "step-18"})
      EXPECT_GT(std::filesystem::remove_all(scratch / "run/1/checkpoints" / step), 0u);
    EXPECT_EQ(bits(train_clicks(strategy, world, folder, true).result), bits(whole)) << strategy;
  }
}

// Every rank takes the whole run back, with new streams in a new epoch.
TEST(Rows, OnRequestGoBackAfterLostShards) {
  const World world =
      on_request(clicks_world(3),
                 {"recovery={type=\"full\", every=6, async=false}",
                  "emulate={hours=10, shards=4, failure=[{hour=4.5, shards=[1]}, {hour=7.5, shards=[0]}]}"});
  const integration::Scratch scratch;
  const RunResult result = train_clicks("{type = 'none'}", world, (scratch / "run").string()).result;
  EXPECT_EQ(result.error, "");
  EXPECT_EQ(result.status, "completed");
  const std::string log = integration::read_file(scratch / "run/1/recovery.jsonl");
  std::size_t backs = 0;
  for (std::size_t at = 0; (at = log.find("\"action\":\"roll_back\"", at)) != std::string::npos; ++at)
    ++backs;
  EXPECT_EQ(backs, 2u) << log;
}

// The paper's point: another trainer's pace does not hold a trainer back.
TEST(Rows, OnRequestLetTrainersGoAtTheirOwnPace) {
  World world = clicks_world(2);
  world.slots = 40;
  world.sets = {kSimulated, "run.log_every=1",
                "transport.straggler=[{ranks=[1], kind=\"factor\", factor=4}]"};
  const auto rate = [](const RunResult& result) {
    EXPECT_EQ(result.error, "");
    return result.metrics.at("train/samples_per_s");
  };
  // Trainer 0 counts the samples of both: 64 in 10 ms + 1 ms alone, in 44 ms with the other one.
  EXPECT_NEAR(rate(train_clicks("{type = 'none'}", world).result), 64 / 0.044, 64 / 0.044 * 0.01);
  EXPECT_NEAR(rate(train_clicks("{type = 'none'}", on_request(world)).result), 64 / 0.011, 64 / 0.011 * 0.01);
}

TEST(Rows, OnRequestLetReplicasPlanTheirOwnSlots) {
  const World world = clicks_world(3);
  EXPECT_THAT(
      refusal_of_clicks("{type = 'skipping', inner = {type = 'none'}}", world),
      HasSubstr("which replicas read and update together in each slot; choose a strategy whose replicas take "
                "the same slots, or set parallel.rows = \"request\""));
  EXPECT_THROW(train_clicks("{type = 'skipping', inner = {type = 'none'}}", world), Error)
      << "before the run appears on disk, as check does";
  const World own = on_request(world, {kSimulated});
  const RunResult run = train_clicks("{type = 'skipping', inner = {type = 'none'}}", own).result;
  EXPECT_EQ(run.error, "");
  EXPECT_LT(run.metrics.at("val/loss"), 0.69);
}

TEST(Rows, OnRequestRefuseWhatCannotBe) {
  EXPECT_THAT(refusal_of_clicks("{type = 'ddp'}", on_request(clicks_world(2))),
              HasSubstr("parallel.rows = \"request\" is for replicas that update alone, but sync strategy "
                        "'ddp' makes all of them apply one gradient"));
  EXPECT_THAT(
      refusal_of_clicks("{type = 'none'}", on_request(clicks_world(2), {"optimizer={type=\"adamw\"}"})),
      HasSubstr("needs an optimizer that tolerates concurrent writers, since several replicas update "
                "one table; 'adamw' does not declare 'hogwild'"));
  EXPECT_THAT(refusal_of_clicks("{type = 'none'}", on_request(clicks_world(2), {"parallel.grid=[2]"})),
              HasSubstr("ranks of one mesh would see updates of rows in different orders"));
  World dense{.replicas = 2, .slots = 2, .precision = "fp32"};
  dense.watched = false;
  EXPECT_THAT(refusal_of_clicks("{type = 'none'}", on_request(dense)),
              HasSubstr("the model has no row table that is sharded over the replicas"));
  EXPECT_THAT(refusal_of_clicks("{type = 'none'}", on_request(clicks_world(2), {"parallel.rows=ask"})),
              HasSubstr("parallel.rows"));
}

}  // namespace
}  // namespace tenon::sync_test::rows_test
