// Promises of the core to observers: on the right ranks, calls in order, spans and tensors only on request,
// numbers of their own, and that a broken one ends alone.
#include "support.hpp"

#include <tenon/host.hpp>
#include <tenon/observer.hpp>

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace rehearsal::observer_test {
namespace {

using namespace tenon;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct SeenSpan {
  std::string track, name;
  double begin_s, end_s;
};

struct SeenParameter {
  std::string name;
  std::vector<float> before, after, gradient;
  double scale;
};

/// Observations of the observers on all ranks, by rank.
struct Seen {
  std::vector<std::string> calls;
  std::vector<SeenSpan> spans;
  std::vector<SeenParameter> parameters;
  std::vector<std::string> outputs;
};
std::mutex mutex;
std::map<int, Seen> seen;

std::vector<float> floats(const TensorView& view) {
  return {view.as<float>(), view.as<float>() + view.elements()};
}

/// Records its calls; options set its requests and where it breaks.
class Watcher final : public Observer, public TensorObserver {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::boolean("every_rank", "false"), option::boolean("spans", "false"),
      option::integer("tensors_every", "0"), option::integer("throw_at", "-1"),
      option::text("throw_in", "''")};
  static constexpr ComponentInfo kInfo{.id = "watcher", .summary = "writes down", .options = kOptions};
  Watcher(const Options& options, Host& host)
      : every_rank_(options.boolean("every_rank")),
        spans_(options.boolean("spans")),
        tensors_every_(options.integer("tensors_every")),
        throw_at_(options.integer("throw_at")),
        throw_in_(options.text("throw_in")),
        rank_(host.rank()),
        sink_(static_cast<MetricSink*>(host.query(MetricSink::kId))) {}

  bool every_rank() const override { return every_rank_; }
  void on_start(const RunInfo& info) override {
    call("start");
    if (info.rank != rank_) throw std::logic_error("another rank's info");
  }
  void on_slot(const SlotRecord& record) override {
    call("slot " + std::to_string(record.slot));
    if (record.slot == throw_at_) throw std::runtime_error("disk on fire");
    if (tensors_every_ > 0) sink_->add(record.slot + 1, Split::kTrain, "watched", 2.0 * record.loss);
  }
  void on_metric(const Metric& metric) override { call("metric " + std::string(metric.name)); }
  void on_span(const Span& span) override {
    const std::lock_guard lock(mutex);
    seen[rank_].spans.push_back({std::string(span.track), std::string(span.name), span.begin_s, span.end_s});
  }
  void on_finish(std::string_view status, std::string_view) override {
    call("finish " + std::string(status));
  }
  void* query(std::string_view id) override {
    if (id == kSpanObserverId && spans_) return this;
    return id == TensorObserver::kId && tensors_every_ > 0 ? static_cast<TensorObserver*>(this) : nullptr;
  }
  TensorRequest tensors(std::int64_t slot) override {
    return {slot % tensors_every_ == 0, slot % tensors_every_ == 0};
  }
  void on_output(const ObservedOutput& output) override {
    call("output");
    const std::lock_guard lock(mutex);
    seen[rank_].outputs.push_back(std::string(output.node) + " " + std::string(output.type) + " " +
                                  output.value.shape.text());
  }
  void on_parameters(std::span<const ObservedParameter> parameters) override {
    const std::lock_guard lock(mutex);
    for (const ObservedParameter& p : parameters) {
      seen[rank_].parameters.push_back(
          {p.info->spec.name, floats(p.before), floats(p.after), floats(p.gradient), p.gradient_scale});
    }
  }

 private:
  void call(const std::string& text) {
    const std::lock_guard lock(mutex);
    seen[rank_].calls.push_back(text);
    if (!throw_in_.empty() && text.starts_with(throw_in_)) throw 7;
  }

  bool every_rank_, spans_;
  std::int64_t tensors_every_, throw_at_;
  std::string throw_in_;
  int rank_;
  MetricSink* sink_;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.watcher", .version = "1.0.0", .summary = "watches"},
                    Watcher)

std::string observer(const std::string& options) {
  return "[[observe]]\ntype = 'watcher'\n" + options + "\n";
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int count(const std::vector<std::string>& calls, const std::string& prefix) {
  return static_cast<int>(
      std::count_if(calls.begin(), calls.end(), [&](const auto& call) { return call.starts_with(prefix); }));
}

class Observers : public ::testing::Test {
 protected:
  Observers() { seen.clear(); }
  Folder folder_;
};

TEST_F(Observers, AreRankZeroUnlessTheyAskForAll) {
  const std::string replicas = std::string(kTwoReplicas) + "[sync]\ntype = 'ddp'\n";
  train(plugin, replicas + observer(""), {}, folder_, "one");
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(count(seen[0].calls, "slot"), 12);
  EXPECT_GT(count(seen[0].calls, "metric loss"), 0);
  EXPECT_TRUE(seen[0].spans.empty()) << "nobody asked";
  EXPECT_EQ(seen[0].calls.front(), "start");
  EXPECT_EQ(seen[0].calls.back(), "finish completed");
  seen.clear();
  train(plugin, replicas + observer("every_rank = true"), {}, folder_, "all");
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(count(seen[1].calls, "slot"), 12);
  EXPECT_EQ(count(seen[1].calls, "metric"), 0) << "lines of metrics are rank 0's";
  EXPECT_EQ(seen[1].calls.back(), "finish completed");
}

TEST_F(Observers, ABrokenOneIsReportedOnceAndTheRunGoesOn) {
  for (const std::string broken : {"throw_at = 3", "throw_in = 'start'", "throw_in = 'metric'"}) {
    seen.clear();
    ::testing::internal::CaptureStderr();
    const RunResult result =
        train(plugin, observer(broken) + observer(""), {}, folder_, "run" + std::to_string(broken.size()));
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(result.steps, 12);
    EXPECT_EQ(result.exit_status, 0);
    const std::string log = text_of(result.folder + "/log.rank0.txt");
    EXPECT_THAT(log, HasSubstr("observer 'watcher' failed and is disabled; training goes on: plugin "
                               "rehearsal.watcher (observer.watcher, rank 0"));
    EXPECT_EQ(log.find("failed and is"), log.rfind("failed and is")) << "once";
    EXPECT_THAT(said, HasSubstr("failed and is disabled"));
    // The second observer received all calls, the first none after its failure.
    EXPECT_EQ(count(seen[0].calls, "finish"), 1);
    const int slots = count(seen[0].calls, "slot");
    EXPECT_EQ(slots, broken == "throw_at = 3" ? 12 + 4 : 12) << broken;
  }
}

TEST_F(Observers, SpansCoverComputeDataAndTransfers) {
  train(plugin,
        kTwoReplicas + std::string("[sync]\ntype = 'ddp'\n[recovery]\ntype = 'full'\nevery = 4\n") +
            observer("every_rank = true\nspans = true"),
        {"run.eval_every=4"}, folder_);
  ASSERT_EQ(seen.size(), 2u);
  for (auto& [rank, one] : seen) {
    std::map<std::string, int> times;
    for (const SeenSpan& span : one.spans) {
      ++times[span.track + "/" + span.name];
      EXPECT_LE(span.begin_s, span.end_s);
      EXPECT_GE(span.begin_s, 0);
    }
    EXPECT_EQ(times["compute/forward"], 12);
    EXPECT_EQ(times["compute/backward"], 12);
    EXPECT_EQ(times["compute/optimizer"], 12);
    EXPECT_EQ(times["data/read"], 12);
    EXPECT_EQ(times["communication/all-reduce replicas.gradient"], 24) << "each is started and waited for";
    EXPECT_EQ(times["evaluate/evaluate"], 3);
    EXPECT_EQ(times["save/copy"], 3);
  }
}

TEST_F(Observers, SeeParametersAroundTheUpdateAndOutputs) {
  const RunResult result = train(plugin, observer("tensors_every = 5"), {}, folder_);
  // Slots 0, 5 and 10; the probe's rule is w - 0.1 g.
  ASSERT_EQ(seen[0].parameters.size(), 3u);
  for (const SeenParameter& p : seen[0].parameters) {
    EXPECT_EQ(p.name, "w");
    EXPECT_EQ(p.scale, 1.0);
    ASSERT_EQ(p.before.size(), 16u);
    for (std::size_t i = 0; i < p.before.size(); ++i) {
      EXPECT_NE(p.before[i], p.after[i]);
      EXPECT_FLOAT_EQ(p.after[i], p.before[i] - 0.1f * p.gradient[i]);
    }
  }
  EXPECT_THAT(seen[0].outputs, ElementsAre("loss quadratic [2]", "loss quadratic [2]", "loss quadratic [2]"));
  // Its own numbers are lines of metrics, and all observers see them.
  EXPECT_THAT(seen[0].calls, Contains("metric watched"));
  EXPECT_THAT(text_of(result.folder + "/metrics.jsonl"), HasSubstr("\"name\": \"watched\""));
  EXPECT_EQ(result.metrics.count("train/watched"), 1u);
}

TEST_F(Observers, WatchingChangesNoBit) {
  const std::string rest = std::string(kTwoReplicas) + "[sync]\ntype = 'ddp'\n";
  const RunResult plain = train(plugin, rest, {}, folder_, "plain");
  const RunResult watched = train(
      plugin, rest + observer("every_rank = true\nspans = true\ntensors_every = 1"), {}, folder_, "watched");
  EXPECT_EQ(plain.weights_hash, watched.weights_hash);
  EXPECT_EQ(plain.state_hash, watched.state_hash);
}

}  // namespace
}  // namespace rehearsal::observer_test
