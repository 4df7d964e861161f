// What a process keeps when the run that it is part of is interrupted by the death of other ranks, and goes
// on without starting again.
#pragma once

#include "comm/control_wire.hpp"
#include "train/held_state.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::train {

/// Outlives the worlds of its process.
struct Survival {
  std::string plugins;               ///< loaded when the process began; by now there are more
  std::optional<HeldState> held;     ///< of this process's rank
  std::optional<Continuation> next;  ///< the newest world ended in an interruption, and the run goes on there
};

/// What ranks found when they met again.
struct Survivors {
  std::int64_t slot = 0;      ///< that the first has done, and no rank more
  int first = 0;              ///< the lowest of them
  std::vector<int> dead;      ///< ranks without state: they began a moment ago, in place of others
  std::vector<int> behind;    ///< had not applied the slot before; others have
  double waited_s = 0;        ///< the longest that one of them has stood still
  bool boundary_done = true;  ///< what was due at the slot's boundary
};

}  // namespace tenon::train
