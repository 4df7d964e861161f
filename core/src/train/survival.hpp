// What a process keeps when the run that it is part of is interrupted by the death of other ranks, and goes
// on without starting again.
#pragma once

#include "comm/control_wire.hpp"
#include "train/held_state.hpp"
#include "train/overhead_ledger.hpp"
#include "train/stop_request.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tenon::train {

/// Packed states of ranks at one slot (held_state.hpp): the own one, and those that this rank holds for
/// others.
struct Copies {
  std::int64_t slot = -1;
  std::map<int, std::string> of;  ///< by rank
};

/// Of a slot of which a copy of every rank is left: who gives it.
struct CopiesLeft {
  std::int64_t slot = 0;
  std::map<int, int> givers;  ///< by whose state it is
};

/// Outlives the worlds of its process.
struct Survival {
  explicit Survival(const TrainRequest& request) : stop(request) {}

  StopRequest stop;                  ///< listens before anything is built or joined
  OverheadLedger ledger;             ///< of rank 0
  std::string plugins;               ///< loaded when the process began; by now there are more
  std::optional<HeldState> held;     ///< of this process's rank
  Copies newest, older;              ///< while newer ones are made, the others are what all can go back to
  std::optional<Continuation> next;  ///< the newest world ended in an interruption, and the run goes on there

  /// State of slots that a roll-back has undone must not come back.
  void forget() {
    held.reset();
    newest = older = {};
  }
};

/// What ranks found when they met again.
struct Survivors {
  std::int64_t slot = 0;             ///< that the first has done, and no rank more
  int first = 0;                     ///< the lowest of them
  std::vector<int> dead;             ///< ranks without state: they began a moment ago, in place of others
  std::vector<int> behind;           ///< had not applied the slot before; others have
  double waited_s = 0;               ///< the longest that one of them has stood still
  bool boundary_done = true;         ///< what was due at the slot's boundary
  std::optional<CopiesLeft> copies;  ///< all go back to them

  std::int64_t goes_on_from() const { return copies ? copies->slot : slot; }
};

inline bool is_among(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace tenon::train
