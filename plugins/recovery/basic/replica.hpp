// Recovery `replica` (contract recovery/1): a replacement for a dead replica copies the state of another
// replica, so nothing is lost and nothing is read. Checkpoints as in `full` cover the death of all replicas,
// and row tables that are sharded over the replicas, whose shards have no second copy.
#pragma once

#include "full.hpp"

namespace tenon::recovery_basic {

class Replica final : public Full {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "replica",
      .summary = "state of a dead replica from a live one; complete checkpoints beside",
      .options = kOptions,
      .capabilities = TENON_CAP_DETERMINISTIC};
  explicit Replica(const Options& options) : Full(options) {}

  void bind(RecoveryHost& host) override;
  FailureDecision on_failure(const FailureEvent& failure) override;

 private:
  std::size_t ranks_ = 1;
  bool rows_are_alone_ = false;  ///< some table is sharded over the replicas
};

}  // namespace tenon::recovery_basic
