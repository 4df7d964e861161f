// Services that the core gives to every component, one Host per rank.
// A Host outlives the components made with it and may be used from any thread of its rank.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

TENON_ABI_BEGIN

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
  /// Optional services by id, e.g. "tenon.random/1"; null when absent.
  virtual void* query(std::string_view interface_id) = 0;
};

TENON_ABI_END
