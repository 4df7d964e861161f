// The point at which the ranks of a process begin, and begin again after a roll-back.
#pragma once

#include "failover/survival.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

namespace tenon::train {

struct StartPoint {
  /// The point at which all ranks go on after they have been built again.
  struct RollBack {
    std::uint32_t epoch = 0;
    std::int64_t slot = -1;        ///< checkpoint; -1 = from the start
    std::int64_t faults_from = 0;  ///< [[fault]]s of earlier slots have happened
    std::int64_t timeline = 0;
    double wall_s = 0;
    std::size_t next_failure = 0;
    bool asked = false;  ///< by the recovery policy, without a failure
  };
  /// Called by every rank of this process, with equal arguments.
  void roll_back(const RollBack& target) {
    const std::lock_guard lock(mutex);
    if (epoch == target.epoch) return;  // another rank of this process was first
    epoch = target.epoch;
    restored_slot = target.slot;
    faults_from = target.faults_from;
    timeline = target.timeline;
    restored_wall_s = target.wall_s;
    next_failure = target.next_failure;
    if (!target.asked) return;
    ++roll_backs;
    rolled_back_to = std::max<std::int64_t>(0, target.slot);
  }

  std::int64_t restored_slot = -1;     ///< checkpoint to continue from; -1 = from the start
  double restored_wall_s = 0;          ///< of the slots before it
  std::uint64_t earlier_bytes = 0;     ///< sent by rank 0 in earlier segments (modulo 2^64)
  std::optional<Survivors> survivors;  ///< the run goes on from what ranks hold in memory
  std::int64_t timeline = 0;           ///< of checkpoints; grows at every roll-back
  std::uint32_t epoch = 0;             ///< how often the ranks were built again
  std::int64_t faults_from = 0;        ///< of the newest roll-back
  std::size_t next_failure = 0;        ///< of the emulated schedule
  std::int64_t evaluated_slot = -1;    ///< of the newest evaluation that the attempt has recorded; rank 0
  std::int64_t roll_backs = 0;         ///< that the recovery policy asked for
  std::int64_t rolled_back_to = -1;    ///< slot that the newest of them went back to
  std::mutex mutex;
};

}  // namespace tenon::train
