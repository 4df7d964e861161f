// Copies of ranks' state in the memory of other ranks, where the recovery policy asks for them
// (MemoryCopies): made at slot boundaries, and fetched when some ranks have died.
#pragma once

#include "train/held_state.hpp"
#include "train/rank_context.hpp"
#include "train/survival.hpp"
#include "train/traced_communicator.hpp"

#include <tenon/recovery.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tenon::train {

class PeerCopies {
 public:
  /// Null unless the policy asks for copies and ranks outlive each other. Throws Error(kConfig) where what
  /// servers hold would be in none.
  static std::unique_ptr<PeerCopies> make(const RankContext& rank, const CommunicatorWatch& watch);

  bool due(const SaveMoment& moment) const;
  /// Collective: copies of all ranks go to their holders, and replace the older of two sets.
  void exchange(const HeldState& held);
  /// "S r r r" of each set of copies that this process holds, one a line.
  std::string text() const;
  /// The newest slot of which a copy of every rank is left, by what each rank said.
  std::optional<CopiesLeft> find(const std::vector<std::string>& said) const;
  /// Collective: receives this rank's state from a rank that holds a copy.
  HeldState fetch(const CopiesLeft& left);

 private:
  PeerCopies(const RankContext& rank, MemoryCopies& copies, const CommunicatorWatch& watch,
             std::vector<std::vector<int>> holders);
  Communicator& group();

  RankContext rank_;
  MemoryCopies& copies_;
  CommunicatorWatch watch_;
  std::vector<std::vector<int>> holders_;  ///< by rank
  std::unique_ptr<Communicator> group_;    ///< all ranks, once there are copies
};

}  // namespace tenon::train
