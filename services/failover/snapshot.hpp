// State that a process keeps when the death of other ranks interrupts its run, which then goes on without
// starting again: a rank's state as copies in memory, taken when the rank stops and given back when it is
// built again, and the facts that the ranks agree on when they join.
#pragma once

#include "control/control_wire.hpp"
#include "failover/stop_request.hpp"
#include "failover/wall_time_breakdown.hpp"
#include "run/rank_state.hpp"
#include "run/state_io.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tenon::train {

/// State of components, by the names of RankState::visit and visit_lines.
struct HeldComponents final : StateSource {
  std::map<std::string, std::string> scalars;
  std::map<std::string, std::vector<std::byte>> tensors;

  const std::string* scalar(const std::string& name) override;
  void tensor(const std::string& name, TensorView out) override;
};

/// State that the forward and backward passes of a slot change, as it was before them: an unfinished slot is
/// run again from here. Weights and optimizer state change at its end alone.
struct SlotMark {
  std::int64_t slot = -1;
  HeldComponents components;                      ///< all but the recovery policy
  std::map<int, std::vector<std::byte>> buffers;  ///< by parameter
};

struct Snapshot {
  std::int64_t slot = 0;       ///< slots done
  bool boundary_done = false;  ///< what was due at its boundary (evaluation, save) has been done
  HeldComponents components;
  std::map<std::string, std::vector<std::byte>> entries;  ///< by StateEntry::name; a table's rows one by one
  std::vector<std::int64_t> unfinished_saves;             ///< slots
  double since_s = 0;                                     ///< on the steady clock: when the rank stopped
};

/// State of the recovery policy alone, and back.
HeldComponents held_recovery(const RankState& state);
void give_back_recovery(const RankState& state, HeldComponents held);
void mark_slot(const RankState& state, std::int64_t slot, SlotMark& mark);
/// `mark`: of a slot that was begun and not ended, else null.
Snapshot take_snapshot(const RankState& state, const SlotMark* mark);
void give_back(const RankState& state, Snapshot& held);
/// Gives back the model's buffers alone, of which each replica may have its own.
void give_back_buffers(const RankState& state, Snapshot& held);
/// Encodes the state for another rank, and back. unpack throws Error(kRun) on bytes that pack did not make.
std::string pack(const Snapshot& held);
Snapshot unpack(const std::string& packed);
/// xxh3-128 of the entries, for logs: a rank that goes on must have what it had.
std::string hash_of(const Snapshot& held);

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
