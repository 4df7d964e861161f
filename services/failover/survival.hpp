// State that a process keeps when the death of other ranks interrupts its run, which then goes on without
// starting again.
#pragma once

#include "control/control_wire.hpp"
#include "failover/snapshot.hpp"
#include "failover/stop_request.hpp"
#include "failover/wall_time_breakdown.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tenon::train {

/// Outlives the worlds of its process.
struct Survival {
  explicit Survival(const TrainRequest& request) : stop(request) {}

  StopRequest stop;              ///< listens before anything is built or joined
  WallTimeBreakdown wall_time;   ///< of rank 0
  std::string plugins;           ///< loaded when the process began; by now there are more
  std::optional<Snapshot> held;  ///< of this process's rank
  std::map<std::string, std::shared_ptr<void>> kept;  ///< by the recovery policy, by name
  std::optional<Continuation> next;  ///< the newest world ended in an interruption, and the run goes on there

  /// State of slots that a roll-back has undone must not come back.
  void forget() {
    held.reset();
    kept.clear();
  }
};

/// State of the ranks as they found it when they joined again.
struct Survivors {
  std::int64_t slot = 0;             ///< that the first has done, and no rank more
  int first = 0;                     ///< the lowest of them
  std::vector<int> dead;             ///< ranks without state: they began a moment ago, in place of others
  std::vector<int> behind;           ///< had not applied the slot before; others have
  double waited_s = 0;               ///< the longest that one of them has stood still
  bool boundary_done = true;         ///< what was due at the slot's boundary
  std::optional<std::int64_t> kept;  ///< slot to which the policy brings all back from memory

  std::int64_t goes_on_from() const { return kept.value_or(slot); }
};

inline bool is_among(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace tenon::train
