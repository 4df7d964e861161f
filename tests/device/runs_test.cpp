// Whole runs of the shipped configurations, small, on the device under test: near the processor's, stopped
// and resumed to the same bits; and refusals before training.
#include "device_test.hpp"
#include "test_paths.hpp"

#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/runtime.hpp>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

namespace tenon::testing::runs_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// Sends the stop signal as a scheduler does, and waits until the run has received it.
class StopAfter final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {option::integer("slots", nullptr).mandatory()};
  static constexpr ComponentInfo kInfo{.id = "stop_after", .summary = "asks for a stop", .options = kOptions};
  explicit StopAfter(const Options& options) : slots_(options.integer("slots")) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord& record) override {
    if (record.slot + 1 != slots_) return;
    ::kill(::getpid(), SIGTERM);
    sigset_t pending;
    for (int tries = 0; tries < 1000 && ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGTERM) == 1;
         ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // from received to reported
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  std::int64_t slots_;
};

TENON_STATIC_PLUGIN(stopping, PluginInfo{.id = "test.stop", .version = "1.0.0", .summary = "stops runs"},
                    StopAfter)

using Sets = std::vector<std::string>;

Sets operator+(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

/// A shipped configuration and overrides that make it small; `name` distinguishes it from others on the same
/// base.
struct Base {
  const char* file;
  Sets small;
  const char* name = file;
};
const Base kBases[] = {
    {"gpt_tiny", {"data.context=16", "data.batch=2", "model.layers=1", "model.width=32", "model.heads=2"}},
    {"lenet5", {"data.batch=4"}},
    {"dlrm_adult", {"data.batch=16"}},
    {"fno_darcy", {"data.batch=2", "model.width=4", "model.modes=[4]"}},
};

const Sets kTwoRanks{"parallel.ranks=2", "transport.type=thread", "sync.type=ddp"};
const Sets kGpt = kBases[0].small, kImages = kBases[1].small, kClicks = kBases[2].small,
           kFields = kBases[3].small;
/// LeNet-5 over ranks that compute independent parts while messages are in transit.
const Sets kOverlapping{
    "parallel.grid=[2,1]",
    "model.override=[{match=\"conv1\",type=\"conv\",features=6,kernel=[5],padding=[2],overlap=true},"
    "{match=\"conv2\",type=\"conv\",features=16,kernel=[5],overlap=true},"
    "{match=\"conv?.pool\",type=\"max_pool\",kernel=[2]},"
    "{match=\"fc1\",axes=[1]},{match=\"fc2\",axes=[0]},{match=\"fc3\",axes=[1]}]"};
/// Other components that access weights, gradients and state.
const Base kOthers[] = {
    {"lenet5", kImages + kTwoRanks, "ddp"},
    {"lenet5", kImages + kTwoRanks + Sets{"sync={type=\"local_sgd\",interval=2}"}, "local_sgd"},
    {"lenet5", kImages + kTwoRanks + Sets{"sync={type=\"diloco\",interval=2,outer_lr=0.7}"}, "diloco"},
    {"lenet5", kImages + kTwoRanks + Sets{"sync={type=\"powersgd\",inner={type=\"ddp\"}}"}, "powersgd"},
    {"dlrm_adult", kClicks + kTwoRanks + Sets{"model.placement=rows"}, "rows_of_others"},
    {"dlrm_adult", kClicks + Sets{"optimizer.type=adagrad", "run.clip=0.5"}, "adagrad_clipped"},
    {"dlrm_adult", kClicks + Sets{"optimizer.type=adamw"}, "rows_by_adamw"},
    {"dlrm_adult", kClicks + Sets{"optimizer.type=sgd"}, "rows_by_sgd"},
    {"gpt_tiny", kGpt + Sets{"optimizer={type=\"muon\",inner={type=\"adamw\"}}", "run.accumulate=2"}, "muon"},
    {"gpt_tiny", kGpt + Sets{"optimizer.type=lamb"}, "lamb"},
    {"lenet5_2x2", kImages, "grid"},
    {"lenet5_2x2", kImages + Sets{"parallel.grid=[2,1]", "parallel.ranks=2", "sync.type=ddp"},
     "replicas_of_grids"},
    {"lenet5_2x2", kImages + kOverlapping, "grid_overlapping"},
    {"fno_darcy_2x2", kFields + Sets{"parallel.grid=[1,2]"}, "fields_in_two"},
    {"fno_darcy_2x2", kFields + Sets{"model.norm=batch"}, "fields_in_four"},
};

class WholeRuns : public ::testing::TestWithParam<Base> {
 protected:
  WholeRuns()
      : folder_(fs::path(TENON_BINARY_DIR) / "tests" / ("device_runs_" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
  }
  ~WholeRuns() override { fs::remove_all(folder_); }

  Config config(const std::string& device, const Sets& sets) const {
    Sets all = GetParam().small + Sets{"device.type=" + device, "device.threads=1", "run.steps=4",
                                       "run.log_every=1",       "run.eval_every=4", "run.eval_batches=2"};
    // The ranks of a run share the first GPU, so that a machine with one runs all of them.
    if (device == "cuda") all.push_back("device.index=0");
    return Config::load(std::string(TENON_SOURCE_DIR) + "/configs/base/" + GetParam().file + ".toml",
                        all + sets);
  }
  RunResult train(const std::string& device, const Sets& sets, const std::string& name, bool resume = false) {
    Runtime runtime;
    runtime.add_plugin(stopping);
    runtime.discover({});
    TrainRequest request;
    request.run_dir = (folder_ / name).string();
    request.quiet = true;
    request.resume = resume;
    request.handle_signals = true;
    return runtime.train(config(device, sets), request);
  }
  /// The losses at the end, of training and of validation.
  std::vector<double> losses(const std::string& device, const std::string& precision) {
    const RunResult result = train(device, {"precision.type=" + precision}, device + precision);
    EXPECT_EQ(result.status, "completed") << result.error;
    return {result.metrics.at("train/loss"), result.metrics.at("val/loss")};
  }

  fs::path folder_;
};

// In f64 both compute the same formulas in other orders: 2^-53 per operation, chains below 2^14 operations
// per slot, which Adam's quotient m / (sqrt(v) + eps) may spread over a weight's whole step of lr ~ 2^-9
// where v is as small as its rounding error; 2^-30 leaves room for that and for no other formula. In f32 a
// run is as far from f64's as its own rounding makes it, which the processor shows: the device may be as far
// and as much again for the luck of signs, 2^-20 of the loss at least.
TEST_P(WholeRuns, EndNearTheProcessors) {
  const auto exact = losses("cpu", "fp64"), exact_here = losses(tested_device(), "fp64");
  const auto plain = losses("cpu", "fp32"), plain_here = losses(tested_device(), "fp32");
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(exact_here[i], exact[i], 0x1p-30 * std::abs(exact[i])) << i;
    const double rounding = std::abs(plain[i] - exact[i]);
    EXPECT_NEAR(plain_here[i], exact[i], 4 * rounding + 0x1p-20 * std::abs(exact[i])) << i;
  }
}

TEST_P(WholeRuns, ResumeToTheSameBits) {
  const Sets saves{"recovery.type=full", "recovery.every=100"};
  const RunResult whole = train(tested_device(), saves, "whole");
  ASSERT_EQ(whole.status, "completed") << whole.error;
  const RunResult stopped =
      train(tested_device(), saves + Sets{"observe=[{type=\"stop_after\",slots=2}]"}, "cut");
  ASSERT_EQ(stopped.status, "interrupted") << stopped.error;
  const RunResult resumed = train(tested_device(), saves, "cut", true);
  ASSERT_EQ(resumed.status, "completed") << resumed.error;
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
}

class OtherRuns : public WholeRuns {};

// The same bound as above: another order of sums.
TEST_P(OtherRuns, AreThoseOfTheProcessor) {
  const auto exact = losses("cpu", "fp64"), exact_here = losses(tested_device(), "fp64");
  for (std::size_t i = 0; i < exact.size(); ++i)
    EXPECT_NEAR(exact_here[i], exact[i], 0x1p-30 * std::abs(exact[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Device, OtherRuns, ::testing::ValuesIn(kOthers),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Device, WholeRuns, ::testing::ValuesIn(kBases),
                         [](const auto& info) { return std::string(info.param.name); });

/// The message of a check; "" if it passes.
std::string refusal(const Sets& sets, const std::string& base = "lenet5") {
  Runtime runtime;
  runtime.discover({});
  try {
    runtime.check(Config::load(std::string(TENON_SOURCE_DIR) + "/configs/base/" + base + ".toml",
                               Sets{"device.type=" + tested_device(), "data.batch=4"} + sets),
                  nullptr);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return error.what();
  }
  return "";
}

struct Refused {
  const char* name;
  Sets sets;
  const char* words;
};
const Refused kRefused[] = {
    {"workers",
     {"parallel.workers=2", "optimizer.type=sgd", "optimizer.lr=0.1"},
     "parallel.workers: the workers of a replica update its weights in host memory"},
    {"shadow",
     {"parallel.ranks=2", "transport.type=thread", "sync.type=shadow_ma"},
     "sync.shadow_ma works on tensors in host memory alone"},
};

class Refusals : public ::testing::TestWithParam<Refused> {};

TEST_P(Refusals, ComeBeforeTraining) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_THAT(refusal(GetParam().sets), HasSubstr(GetParam().words));
}

// Components that work in host memory alone are refused if the device's memory is another.
INSTANTIATE_TEST_SUITE_P(Device, Refusals,
                         ::testing::ValuesIn(tested_device() == "cpu"
                                                 ? std::vector<Refused>{}
                                                 : std::vector<Refused>(std::begin(kRefused),
                                                                        std::end(kRefused))),
                         [](const auto& info) { return std::string(info.param.name); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Refusals);

}  // namespace
}  // namespace tenon::testing::runs_test
