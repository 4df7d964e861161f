// The run's clock. With the wall clock, time passes by itself. With the simulated clock every worker and
// actor has its own virtual time, one of them runs at a time, and an interaction runs only when no other
// could come earlier (ties by replica, then actor): asynchronous strategies become deterministic experiments.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

class Clock {
 public:
  virtual ~Clock();
  virtual bool simulated() const = 0;
  /// Seconds since the run began, for the calling thread.
  virtual double now() const = 0;
  /// Declares `seconds` of work done by the calling thread. Simulated: advances its time and lets earlier
  /// ones run.
  virtual void advance(double seconds) = 0;
  /// Announces a participant before its thread starts, so that nobody overtakes it. Returns its id.
  virtual int announce(int replica, int actor, std::string_view name) = 0;
  /// The calling thread becomes participant `id`; simulated: returns when it may run.
  virtual void enter(int id) = 0;
  /// The calling thread is no longer a participant. Must be called even on failure.
  virtual void leave() = 0;
  /// Simulated: parks the caller until another participant calls `wake(id, at)`; its time becomes max(own,
  /// at). Wall: must not be called. Throws DeadlineError if no participant can ever run again.
  virtual void park(std::string_view waiting_for) = 0;
  virtual void wake(int id, double at) = 0;
  /// Participant id of the calling thread, -1 when none.
  virtual int current() const = 0;
};

TENON_ABI_END
