// The control plane: whether slot t is applied, and the common future slot at which all ranks
// save, evaluate or stop. In-process for rank threads; over TCP for processes. Its bytes are counted as
// `control`.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

/// Bits of what happens at the beginning of a slot. kControlInterrupt goes with kControlStop when a signal
/// asked for it: the run then counts as interrupted, not as completed.
enum ControlAction : std::uint32_t {
  kControlSave = 1u,
  kControlEvaluate = 2u,
  kControlStop = 4u,
  kControlInterrupt = 8u
};

class Clock;

class ControlPlane {
 public:
  virtual ~ControlPlane();
  /// Rank `rank` is about to begin slot `slot`. Returns the actions that all ranks agreed to take before it.
  virtual std::uint32_t begin_slot(int rank, std::int64_t slot) = 0;
  /// Schedules a request of one rank (signal, timer, budget) for the lowest slot that no rank has begun;
  /// returns that slot.
  virtual std::int64_t request(std::uint32_t actions, std::string_view reason) = 0;
  /// Votes on slot `slot`; returns true only if every rank voted yes. Waits up to the deadline.
  virtual bool commit(int rank, std::int64_t slot, bool yes) = 0;
  /// The first failure wins: communicators are cancelled and every rank reports this text.
  virtual void fail(int rank, int exit_status, std::string_view message) = 0;
  virtual bool failed() const = 0;
  virtual std::string failure() const = 0;  ///< "" when none
  virtual int failure_status() const = 0;   ///< exit status of the first failure, 0 when none
  virtual std::uint64_t bytes() const = 0;
};

/// The control plane of ranks that are threads of this process. `clock` outlives it.
std::unique_ptr<ControlPlane> make_thread_control(int ranks, double deadline_s, Clock& clock);

TENON_ABI_END
