// Observer `progress` (contract observer/1): the progress of the run, on standard error. On a terminal one
// line is redrawn at most ten times a second; elsewhere a plain line is written every few seconds and after
// each evaluation. A quiet run shows nothing.
#pragma once

#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

namespace tenon::progress {

/// Destination of progress lines: standard error, or a test's memory.
class LineOutput {
 public:
  virtual ~LineOutput() = default;
  /// Writes all of it at once and ignores failures, because a closed terminal must not end a run.
  virtual void write(std::string_view text) = 0;
  /// Returns the columns of the terminal, 80 if unknown.
  virtual int width() const = 0;
};

std::unique_ptr<LineOutput> standard_error();

/// Speed and remaining time from the progress between two samples. Uses real time even if the run's clock is
/// simulated, since it tells how long a person has to wait.
class Meter {
 public:
  /// Starts counting; the first sample yields rates from here on.
  void start(double now, std::int64_t slots, std::int64_t units);
  /// Adds a sample: totals at `now` in seconds. Skips a sample less than 50 ms after the last one; the next
  /// one covers it.
  void look(double now, std::int64_t slots, std::int64_t units);
  bool started() const { return started_; }
  double units_per_second() const { return units_rate_; }  ///< NaN before the first sample
  double seconds_for(std::int64_t slots) const { return static_cast<double>(slots) / slots_rate_; }

 private:
  bool started_ = false;
  double at_ = 0;
  std::int64_t slots_ = 0, units_ = 0;
  double slots_rate_ = std::numeric_limits<double>::quiet_NaN();
  double units_rate_ = std::numeric_limits<double>::quiet_NaN();
};

// Text of a progress line, independent of when and where it is shown.

/// A short text without allocation; longer text is truncated.
template <std::size_t Capacity>
class ShortText {
 public:
  void assign(std::string_view text) {
    size_ = text.size() < Capacity ? text.size() : Capacity;
    text.copy(data_.data(), size_);
  }
  std::string_view view() const { return {data_.data(), size_}; }

 private:
  std::array<char, Capacity> data_{};
  std::size_t size_ = 0;
};

struct NamedValue {
  ShortText<24> name;
  double value = 0;
};

/// State of the run for display. NaN = not known yet.
struct Snapshot {
  std::string_view run;
  std::int64_t done = 0, steps = 0;  ///< slots
  double loss = 0, lr = 0;
  std::array<NamedValue, 2> validation;  ///< "loss", then the first other metric
  int validations = 0;
  std::array<NamedValue, 2> named;  ///< losses of the first named evaluations: "val.NAME"
  int named_evaluations = 0;
  double rate = 0;        ///< units per second
  std::string_view unit;  ///< "tok" or "samples"
  double seconds_left = 0;
};

inline constexpr std::size_t kLineCapacity = 512;
using LineBuffer = std::array<char, kLineCapacity>;

/// Formats one line for a terminal of `width` columns, at most width - 1 long, with a bar if there is room
/// for one: "tiny [=====>    ] 120/400 | loss 2.345 | val loss 2.401 | lr 1.00e-03 | 12.3k tok/s | ETA 0:42".
std::string_view bar_line(LineBuffer& buffer, const Snapshot& now, int width);
/// Formats the same facts for a log file: "step 120/400 (30.0 %) | loss 2.345 | ...", newline included.
std::string_view plain_line(LineBuffer& buffer, const Snapshot& now);
/// Formats the last line: "completed: 400/400 steps in 0:12 | loss 1.900 | ... ", with the message if there
/// is one, newline included.
std::string_view final_line(LineBuffer& buffer, const Snapshot& now, std::string_view status,
                            std::string_view message, double seconds);

class Progress final : public Observer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("every_s", "10")
          .at_least(0)
          .in_unit("s")
          .doc_text("time between plain lines where standard error is not a terminal"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "progress",
      .summary = "progress line with loss, rate and remaining time on standard error",
      .options = kOptions};
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
  void on_named(const Metric& metric);
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
