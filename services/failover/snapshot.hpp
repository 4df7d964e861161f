// A rank's state as copies in memory, for a run that outlives the death of other ranks: taken when the rank
// stops, given back when it is built again.
#pragma once

#include "run/rank_state.hpp"
#include "run/state_io.hpp"

#include <cstdint>
#include <map>
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

}  // namespace tenon::train
