// Training that diverges: watched in every slot where the recovery policy wants that (DivergenceWatch), and
// answered at the next boundary with a roll-back.
#pragma once

#include "train/rank_context.hpp"
#include "train/recovery_actions.hpp"
#include "train/saves.hpp"
#include "train/service.hpp"

#include <tenon/recovery.hpp>

#include <cstdint>

namespace tenon::train {

class Divergence final : public Service {
 public:
  /// `grid`: null when the model grid has one rank. Throws Error(kConfig) where ranks do not share what the
  /// policy watches.
  Divergence(const RankContext& rank, Saves& saves, RecoveryActions& recovery, Communicator* grid);

  void after_slot(std::int64_t slot, const SlotResult& result) override;
  void plan(Boundary& due) override;
  void at_boundary(Boundary& due) override;
  /// After every restoration: what the newest roll-back for divergence changed is no part of its checkpoint.
  void begin_again();

 private:
  RankContext rank_;
  Saves& saves_;
  RecoveryActions& recovery_;
  Communicator* grid_;
  DivergenceWatch* watch_;  ///< of the policy; null when it has none
  bool diverged_ = false;   ///< in the slot before this boundary
  bool due_ = false;
};

}  // namespace tenon::train
