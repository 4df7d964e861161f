// Readings of a power source on a thread of their own, on a grid of equal steps, into a file. A source that
// throws, gives what is no reading, or does not return is given up; training never waits for one.
#pragma once

#include <tenon/clock.hpp>
#include <tenon/config.hpp>
#include <tenon/files.hpp>
#include <tenon/phases.hpp>
#include <tenon/power.hpp>
#include <tenon/registry.hpp>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace tenon::train {

/// A source with what it lives on: a thread that a sensor never gives back keeps it.
struct SourceComponent {
  std::unique_ptr<ResolvedOptions> options;  ///< first: outlives the component
  Component<Power> component;
  PowerSource* source = nullptr;
  PhaseObserver* phases = nullptr;  ///< null: it does not hear phases
};

/// "measured", "modelled"; "watts", "share".
std::string_view power_origin_name(PowerOrigin origin);
std::string_view power_unit_name(PowerUnit unit);

/// What a source gave, for the record of a run.
struct PowerReadings {
  std::optional<PowerSourceInfo> info;  ///< empty: it did not open
  std::string ended;                    ///< why there are no further readings; "" = it went on to the end
  double rate_hz = 0;
  std::int64_t rows = 0;     ///< of the file, in steps of 1 / rate_hz
  std::int64_t held = 0;     ///< of them, that repeat the one before: no reading came in time
  std::int64_t changes = 0;  ///< readings that differ from the one before
  double sum = 0, lowest = 0, highest = 0;
  double counted_j = 0;  ///< by the hardware's counter; NaN where there is none

  double mean() const { return sum / static_cast<double>(rows); }
  double seconds() const { return static_cast<double>(rows) / rate_hz; }
  double joules() const { return sum / rate_hz; }
  double update_hz() const { return static_cast<double>(changes) / seconds(); }
};

class PowerSampler {
 public:
  struct Spec {
    std::shared_ptr<SourceComponent> source;
    int local_rank = 0;
    double rate_hz = 100;
    const Clock* clock = nullptr;  ///< of the run; it outlives this
    std::string path;              ///< of the file
    /// Called at once where the source is given up, with the reason. Any thread.
    std::function<void(const std::string&)> report;
    /// Longest time that end() waits for a call of the source.
    double patience_s = 2;
  };

  explicit PowerSampler(Spec spec);
  ~PowerSampler();
  PowerSampler(const PowerSampler&) = delete;
  PowerSampler& operator=(const PowerSampler&) = delete;

  /// Starts the thread, which opens the source first.
  void begin();
  /// Ends it, at the latest after patience_s, and returns what was read.
  PowerReadings end();

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace tenon::train
