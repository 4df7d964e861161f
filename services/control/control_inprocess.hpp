// The control plane of ranks that are threads of one process: the state machine of control_state.hpp under a
// lock, and waiting on the run's clock. Its bytes are those that the same conversation would cost on a wire.
#pragma once

#include "control/control_state.hpp"
#include "control/failure_callbacks.hpp"

#include <tenon/clock.hpp>

#include <tenon/control.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

TENON_ABI_BEGIN

/// Thread-safe. After a failure, begin_slot and commit throw CancelledError with its text, at once and on
/// every rank.
class InprocessControl final : public ControlPlane {
 public:
  /// Throws Error(kConfig) unless ranks >= 1 and deadline_s > 0. `clock` outlives this object. voters: of
  /// ControlState.
  InprocessControl(int ranks, double deadline_s, Clock& clock, int voters = 0);

  /// `callback(failure text)` runs once, on the thread of the first failure (at once if that has happened),
  /// e.g. to cancel a communicator. It must not call on_failure or forget. Returns an id for `forget`.
  int on_failure(std::function<void(const std::string&)> callback);
  /// After this returns the callback does not run any more.
  void forget(int id);

  std::uint32_t begin_slot(int rank, std::int64_t slot) override;
  std::int64_t request(std::uint32_t actions, std::string_view reason) override;
  bool commit(int rank, std::int64_t slot, bool yes) override;
  void fail(int rank, int exit_status, std::string_view message) override;
  bool failed() const override;
  std::string failure() const override;
  int failure_status() const override;
  std::uint64_t bytes() const override;

 private:
  void throw_if_failed() const;
  void heard_from(int rank);
  void count(std::uint64_t records, std::size_t text_bytes = 0);
  std::string late_text(std::int64_t slot, const std::string& why) const;

  const double deadline_s_;
  Clock& clock_;
  mutable std::mutex mutex_;
  ControlState state_;
  ClockEvent changed_;
  std::vector<double> heard_;  // by rank: the clock at its last call
  std::uint64_t bytes_ = 0;

  FailureCallbacks callbacks_;  // its lock is taken before mutex_, never inside it
};

std::unique_ptr<InprocessControl> make_inprocess_control(int ranks, double deadline_s, Clock& clock,
                                                         int voters = 0);

TENON_ABI_END
