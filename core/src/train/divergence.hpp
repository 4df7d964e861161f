// Training that diverges: watched in every slot where the recovery policy wants that (DivergenceWatch), and
// answered at the next boundary with a roll-back.
#pragma once

#include "train/metric_lines.hpp"
#include "train/parts.hpp"
#include "train/rank_host.hpp"
#include "train/rank_state.hpp"
#include "train/recovery_actions.hpp"
#include "train/replica.hpp"
#include "train/saves.hpp"
#include "train/service.hpp"
#include "train/world.hpp"

#include <tenon/recovery.hpp>

#include <cstdint>

namespace tenon::train {

class Divergence final : public Service {
 public:
  struct Sources {
    int rank = 0;
    RankHost* host = nullptr;
    Parts* parts = nullptr;
    RankReplica* weights = nullptr;
    RankState* state = nullptr;
    Counters* counters = nullptr;
    Saves* saves = nullptr;
    RecoveryActions* recovery = nullptr;
    Communicator* grid = nullptr;  ///< null when the model grid has one rank
  };
  /// Throws Error(kConfig) where ranks do not share what the policy watches.
  Divergence(World& world, const Sources& sources);

  void after_slot(std::int64_t slot, const SlotResult& result) override;
  void plan(Boundary& due) override;
  void at_boundary(Boundary& due) override;
  /// After every restoration: what the newest roll-back for divergence changed is no part of its checkpoint.
  void begin_again();

 private:
  World& world_;
  Sources from_;
  std::uint32_t epoch_;
  DivergenceWatch* watch_;  ///< of the policy; null when it has none
  bool diverged_ = false;   ///< in the slot before this boundary
  bool due_ = false;
};

}  // namespace tenon::train
