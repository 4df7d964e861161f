// shadow_easgd, shadow_ma and shadow_bmuf with threads and the wall clock: they learn, use every sample once,
// and end in order, for any source of the request; and refusals.
#include "world.hpp"

#include <tenon/dataset.hpp>

namespace tenon::sync_test::shadow_threads_test {
namespace {

using ::testing::HasSubstr;

std::mutex counted_mutex;
std::map<std::int64_t, int> counted;  ///< by first sample of a batch for training

/// Counts reads of the inner data set.
class Counted final : public Dataset {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "dataset/1").mandatory()};
  static constexpr ComponentInfo kInfo{.id = "counted", .summary = "counts", .options = kOptions};
  explicit Counted(const Options& options) : inner_(options.component<Dataset>("inner")) {}
  void open(std::uint64_t seed) override { inner_->open(seed); }
  std::int64_t batch() const override { return inner_->batch(); }
  const DataInfo& info() const override { return inner_->info(); }
  void read(const BatchRequest& request, std::span<const TensorView> fields) override {
    if (request.split == Split::kTrain) {
      const std::lock_guard lock(counted_mutex);
      ++counted[request.first];
    }
    inner_->read(request, fields);
  }
  void* query(std::string_view id) override { return inner_->query(id); }

 private:
  Dataset* inner_;
};
TENON_STATIC_PLUGIN(counting, PluginInfo{.id = "test.counted", .version = "1.0.0", .summary = "counts"},
                    Counted)

const char* const kStrategies[] = {
    "{type = 'shadow_easgd'}",
    "{type = 'shadow_easgd', merge_lock = 'per_shard'}",
    "{type = 'shadow_easgd', mode = 'foreground', interval = 5}",
    "{type = 'shadow_easgd', mode = 'foreground', interval = 5, exchange = 'delta'}",
    "{type = 'shadow_ma', rest = 0.002}",
    "{type = 'shadow_ma', merge = 'delta', merge_lock = 'per_shard'}",
    "{type = 'shadow_ma', mode = 'foreground', interval = 5}",
    "{type = 'shadow_bmuf', momentum = 0.2}",
};

World threads(const std::string& strategy) {
  World world{.replicas = 2, .slots = 120, .precision = "fp32"};
  world.watched = false;
  world.model =
      "[data]\ntype = \"counted\"\ninner = {type = \"mnist\", batch = 16, scale = "
      "\"standard\"}\n[model]\ntype = "
      "\"mlp\"\nhidden = [32]\n";
  world.sets = {"parallel.workers=2", "run.eval_every=40"};
  if (strategy.find("easgd") != std::string::npos) world.sets.push_back("parallel.servers=1");
  return world;
}

TEST(ShadowThreads, LearnWithLockFreeWorkersAndUseEverySampleOnce) {
  for (const std::string strategy : kStrategies) {
    counted.clear();
    const Outcome run = train(strategy, threads(strategy), {}, false, &counting);
    ASSERT_EQ(run.result.error, "") << strategy;
    EXPECT_LT(run.result.metrics.at("val/loss"), 1.6) << strategy << ": from 2.3";
    EXPECT_EQ(counted.size(), 240u) << strategy;
    for (const auto& [first, times] : counted) EXPECT_EQ(times, 1) << strategy << first;
    EXPECT_EQ(counted.rbegin()->first, 239 * 16);
    const Distribution& gaps = run.result.distributions.at("sync_gap");
    EXPECT_GT(gaps.count, 0u) << strategy;
    EXPECT_GE(gaps.least, 0);
    if (strategy.find("foreground") != std::string::npos) {
      EXPECT_EQ(gaps.count, 2 * 120 / 5) << "FR-EASGD-k has gap k";
      EXPECT_NEAR(gaps.mean, 5, 0.2);
    }
    EXPECT_THAT(run.result.nondeterminism, HasSubstr("2 workers"));
  }
}

TEST(ShadowThreads, EndWhenTheirTimeIsSpent) {
  for (const std::string strategy : kStrategies) {
    World world = threads(strategy);
    world.slots = 1000000;
    world.sets.push_back("run.max_seconds=0.5");
    world.sets.push_back("run.eval_every=0");
    const auto begin = std::chrono::steady_clock::now();
    const Outcome run = train(strategy, world, {}, false, &counting);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(run.result.error, "") << strategy;
    EXPECT_LT(spent.count(), 20) << strategy << ": run.deadline is 60 s";
    EXPECT_GT(run.result.steps, 1);
  }
}

std::vector<std::string> words(const std::string& strategy, const std::string& steps) {
  std::vector<std::string> all{"train", "run.toml", "--quiet"};
  const bool served = strategy.find("easgd") != std::string::npos;
  const std::vector<std::string> sets = {
      "run.steps=" + steps,
      "run.log_every=1000",
      "optimizer={type=\"sgd\", lr=0.1}",
      "sync=" + strategy,
      "transport={type=\"thread\"}",
      std::string("parallel={ranks=2, workers=2, servers=") + (served ? "2}" : "0}"),
      "recovery.every=1000000"};
  for (const std::string& set : sets) {
    all.emplace_back("--set");
    all.push_back(set);
  }
  return all;
}

TEST(ShadowThreads, ASignalDrainsSavesAndEnds) {
  for (const std::string strategy : kStrategies) {
    const integration::Scratch scratch;
    integration::Child child({words(strategy, "10000000"), scratch.folder(), {}});
    for (int i = 0; i < 400 && !std::filesystem::exists(scratch / "runs/tiny/latest/metrics.jsonl"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    child.send(SIGTERM);
    const integration::Ended ended = child.wait();
    ASSERT_EQ(ended.status, 0) << strategy << ended.err;
    EXPECT_EQ(scratch.summary("status"), "\"interrupted\"") << strategy;
    const std::int64_t steps = std::stoll(scratch.summary("steps"));
    EXPECT_GT(steps, 0);
    std::vector<std::string> more = words(strategy, std::to_string(steps + 10));
    more.emplace_back("--resume");
    const integration::Ended resumed = scratch.run(more);
    EXPECT_EQ(resumed.status, 0) << strategy << resumed.err;
    EXPECT_EQ(scratch.summary("steps"), std::to_string(steps + 10));
  }
}

std::string refusal(const std::string& strategy, std::vector<std::string> sets, int replicas = 2) {
  World world{.replicas = replicas, .slots = 4, .precision = "fp32"};
  world.watched = false;
  world.sets = std::move(sets);
  try {
    return train(strategy, world).result.error;
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ShadowThreads, RefuseWhatCannotBe) {
  EXPECT_THAT(refusal("{type = 'shadow_easgd'}", {}),
              HasSubstr("servers hold the centre, and this run has none; set [parallel] servers = 1"));
  for (const char* type : {"shadow_ma", "ddp", "none"}) {
    EXPECT_THAT(refusal(std::string("{type = '") + type + "'}", {"parallel.servers=2"}),
                HasSubstr("parallel.servers = 2: sync strategy '" + std::string(type) +
                          "' places nothing on servers; set it to 0"));
  }
  EXPECT_THAT(refusal("{type = 'shadow_easgd', mode = 'foreground', order = [0, 0]}", {"parallel.servers=1"}),
              HasSubstr("'order' lists every trainer, 0 to 1, once"));
  EXPECT_THAT(refusal("{type = 'shadow_ma', at = [3]}", {}), HasSubstr("'at' scripts exchanges"));
  EXPECT_THAT(refusal("{type = 'shadow_bmuf', piece = 7}", {}),
              HasSubstr("'piece' is 7 bytes; expected 0, or at least 256"));
  EXPECT_THAT(refusal("{type = 'shadow_ma', mode = 'stepped', interval = 1}", {"parallel.workers=2"}),
              HasSubstr("mode = \"stepped\" is for one worker"));
  EXPECT_THAT(
      refusal("{type = 'shadow_easgd'}", {"parallel.servers=1", "fault=[{rank=2, step=1, kind=\"crash\"}]"}),
      HasSubstr("[[fault]]: rank 2 is a server; faults happen to ranks that train, 0 to 1"));
}

// A trainer that fails ends the others and the servers, at once and under its name.
TEST(ShadowThreads, AFailureEndsServersAndTrainers) {
  for (const std::string strategy : kStrategies) {
    std::vector<std::string> sets{"fault=[{rank=1, step=3, kind=\"crash\"}]", "run.steps=1000"};
    if (strategy.find("easgd") != std::string::npos) sets.emplace_back("parallel.servers=2");
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(refusal(strategy, sets), HasSubstr("rank 1: ")) << strategy;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  }
}

// Tables are sharded over the trainers and read in step, so there is one worker each; dense weights follow in
// the background.
TEST(ShadowThreads, TrainBesideTablesThatTrainersShare) {
  for (const std::string strategy : kStrategies) {
    World world{.replicas = 2,
                .slots = 60,
                .optimizer = "type = \"rowwise_adagrad\"\nlr = 0.02\n",
                .precision = "fp32"};
    world.watched = false;
    world.model =
        "[data]\ntype = \"synthetic_ctr\"\ntables = 4\nrows = [200]\nbatch = 64\n[model]\ntype = "
        "\"dlrm\"\nbottom = [16, "
        "8]\ntop = [16, 1]\nplacement = \"rows\"\n";
    if (strategy.find("easgd") != std::string::npos) world.sets.emplace_back("parallel.servers=1");
    const Outcome run = train(strategy, world);
    ASSERT_EQ(run.result.error, "") << strategy;
    EXPECT_LT(run.result.metrics.at("val/loss"), 0.75) << strategy;
    EXPECT_GT(run.result.distributions.at("sync_gap").count, 0u);
  }
}

}  // namespace
}  // namespace tenon::sync_test::shadow_threads_test
