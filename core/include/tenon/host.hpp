// Services that the core gives to every component, one Host per rank.
// A Host outlives the components made with it and may be used from any thread of its rank.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

TENON_ABI_BEGIN

enum class Split : std::uint8_t;  // <tenon/dataset.hpp>

/// Service of the host, for numbers of a component's own: host.query(MetricSink::kId). Null outside runs
/// (`tenon check` builds a run, `tenon evaluate` does not).
class MetricSink {
 public:
  static constexpr const char* kId = "tenon.metrics/1";
  virtual ~MetricSink();
  /// One of many values of `name`, from any component, thread and rank: e.g. the slots between two rounds.
  /// The core keeps count, mean, extremes and a histogram in powers of two over all ranks in summary.json
  /// ("distributions"), and writes rank 0's mean since the last line of metrics.jsonl into the next one.
  /// Sends nothing; allocates for a name's first value only.
  virtual void record(std::string_view name, double value) = 0;
  /// A line of metrics.jsonl that observers see too. Observers only, inside on_slot; ranks other than 0 write
  /// nothing.
  virtual void add(std::int64_t step, Split split, std::string_view name, double value) = 0;
};

enum class LogLevel : std::uint8_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

/// A background loop of a plugin: guarded, stoppable, with its own virtual time under the simulated clock.
/// Destruction asks it to stop and joins; the loop must return within the run's deadline after `stopping()`.
class Actor {
 public:
  virtual ~Actor();
  /// True once the host or the owner asked for the end.
  virtual bool stopping() const = 0;
  /// Called by the loop between two rounds: parks here while the replica is paused, returns false when
  /// stopping.
  virtual bool checkpoint() = 0;
  /// Waits `seconds` on the run's clock (virtual or wall), returns early when stopping.
  virtual void sleep(double seconds) = 0;
  /// Asks the loop to end and waits for it; rethrows what the loop threw as Error. Repeatable.
  virtual void stop() = 0;
};

class Host {
 public:
  virtual ~Host();
  /// Writes to log.rank<r>.txt with component, rank and step.
  virtual void log(LogLevel level, std::string_view message) = 0;
  /// Rank in the world, and ranks in the world.
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// Seconds on the run's clock: wall time, or this thread's virtual time.
  virtual double now() const = 0;
  /// Starts a guarded background loop; plugins make no threads of their own.
  virtual std::unique_ptr<Actor> spawn(std::string_view name, std::function<void(Actor&)> loop) = 0;
  /// Deadline of a single wait in seconds ([run] deadline).
  virtual double deadline() const = 0;
  /// Optional services by id, e.g. MetricSink::kId; null when absent.
  virtual void* query(std::string_view interface_id) = 0;
};

/// MetricSink::record where there is a sink; does nothing elsewhere. Code that records in every call keeps
/// the sink instead.
void record_metric(Host& host, std::string_view name, double value);

TENON_ABI_END
