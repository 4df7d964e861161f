// Observer `progress` (contract observer/1): the progress of the run, on standard error. On a terminal one
// line is redrawn at most ten times a second; elsewhere a plain line is written every few seconds and after
// each evaluation. A quiet run shows nothing.
#pragma once

#include "line_output.hpp"
#include "meter.hpp"
#include "progress_text.hpp"

#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <functional>
#include <memory>
#include <string>

namespace tenon::progress {

class Progress final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("every_s", "10")
          .at_least(0)
          .in_unit("s")
          .doc_text("time between plain lines where standard error is no terminal"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "progress",
      .summary = "progress line with loss, rate and remaining time on standard error",
      .options = kOptions,
      .capabilities = TENON_CAP_DETERMINISTIC};
  /// Seconds of a monotonic clock.
  using Now = std::function<double()>;

  explicit Progress(const Options& options);
  Progress(double every_s, std::unique_ptr<LineOutput> output, Now now);

  bool every_rank() const override { return false; }
  void on_start(const RunInfo& info) override;
  void on_slot(const SlotRecord& record) override;
  void on_metric(const Metric& metric) override;
  void on_span(const Span&) override {}
  void on_finish(std::string_view status, std::string_view message) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  void show(double now);
  void show_evaluation();

  double every_s_;
  std::unique_ptr<LineOutput> output_;
  Now now_;
  bool quiet_ = true, terminal_ = false;
  bool evaluated_ = false;  // validation arrived that no plain line has shown yet
  double started_at_ = 0, shown_at_ = 0;
  Meter meter_;
  std::string run_;
  Snapshot snapshot_;
  LineBuffer buffer_;
};

}  // namespace tenon::progress
