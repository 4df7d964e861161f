// Rehearses an observer that accounts for a run's time: seconds of each phase as metrics of every slot, from
// the spans that the core already times.
#include "support.hpp"

#include <tenon/host.hpp>
#include <tenon/observer.hpp>

#include <chrono>
#include <map>

namespace rehearsal::phases_test {
namespace {

using namespace tenon;

class Phases final : public Observer {
 public:
  static constexpr ComponentInfo kInfo{.id = "phases", .summary = "seconds of each phase"};
  Phases(const Options&, Host& host) : sink_(static_cast<MetricSink*>(host.query(MetricSink::kId))) {}

  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord& record) override {
    for (auto& [track, seconds] : seconds_)
      sink_->add(record.slot + 1, Split::kTrain, "phase_" + track + "_s", seconds);
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span& span) override {
    if (span.track != "layer") seconds_[std::string(span.track)] += span.end_s - span.begin_s;
  }
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view id) override { return id == kSpanObserverId ? this : nullptr; }

 private:
  MetricSink* sink_;
  std::map<std::string, double> seconds_;
};

TENON_STATIC_PLUGIN(plugin,
                    PluginInfo{.id = "rehearsal.phases", .version = "1.0.0", .summary = "where time goes"},
                    Phases)

TEST(Phases, AreMetricsOfTheRun) {
  const Folder folder;
  const auto began = std::chrono::steady_clock::now();
  const RunResult result = train(plugin, "",
                                 {"optimizer={type='sgd', lr=0.1}", "observe=[{type='phases'}]",
                                  "recovery={type='full', every=3, async=false}", "run.eval_every=3"},
                                 folder);
  double sum = 0;
  for (const char* track : {"data", "compute", "evaluate", "save"}) {
    const double seconds = result.metrics.at(std::string("train/phase_") + track + "_s");
    EXPECT_GT(seconds, 0) << track;
    sum += seconds;
  }
  EXPECT_LE(sum, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count())
      << "phases of one thread do not overlap";
  EXPECT_FALSE(result.metrics.contains("train/phase_communication_s")) << "one rank waits for nobody";
}

}  // namespace
}  // namespace rehearsal::phases_test
