// Recovery `replica` (contract recovery/1): a replica that dies is given what another one holds, so nothing
// is lost and nothing is read. Checkpoints as `full` makes them are for the day when all die, and for row
// tables that are cut over the replicas, which nobody else holds.
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
  bool rows_are_alone_ = false;  ///< some table is cut over the replicas
};

}  // namespace tenon::recovery_basic
