// The canary of checkpoints: each rank records the loss of the first micro-batch that it trains after a save,
// and a run that goes on from that checkpoint computes the same loss before its first slot. Digests show that
// a checkpoint is what was written; this shows that what was written was the state. It takes part in no hash.
#pragma once

#include "loop/service.hpp"
#include "record/saves.hpp"
#include "run/rank_context.hpp"
#include "run/trainer.hpp"
#include "store/canary.hpp"

#include <tenon/checkpoint.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace tenon::train {

class Canary final : public Service {
 public:
  /// `nondeterminism`: why this run may have other bits by its very kind; "" if it may not.
  Canary(const RankContext& rank, Trainer& trainer, Saves& saves, std::string nondeterminism);

  void before_slot(std::int64_t slot) override;
  /// Keeps the loss of the slot after a save.
  void after_slot(std::int64_t slot, const SlotResult& result) override;
  /// The state is that of `reader`, and no slot has begun: returns why the checkpoint is not to be believed,
  /// the same on all ranks; "" where the losses are equal or there is nothing to compare, which the log says.
  /// Leaves no trace in the state. Collective.
  std::string contradiction(const CheckpointReader& reader);

 private:
  /// Why this run records and compares nothing; "" where it does.
  std::string idle_reason() const;
  /// Why the loss that was recorded beside `reader` cannot be compared; "" where `record` has it.
  std::string incomparable_reason(const CheckpointReader& reader,
                                  std::optional<checkpoint::CanaryRecord>& record);
  std::string path(std::int64_t slot, int place) const;
  void save_ended(std::int64_t slot, bool committed, int place);
  void write();
  const std::string& setting();
  std::string facts() const;

  RankContext rank_;
  Trainer& trainer_;
  Saves& saves_;
  std::string nondeterminism_;
  std::string setting_;  ///< digest; "" until it is needed
  std::int64_t position_ = 0;
  std::int64_t committed_ = -1;                      ///< slot of the newest checkpoint of this process
  int place_ = kRunFolder;                           ///< where that is
  std::optional<checkpoint::CanaryRecord> pending_;  ///< of a checkpoint that is not committed yet
};

}  // namespace tenon::train
