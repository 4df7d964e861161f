// Failures of an emulated cluster ([emulate]), answered at slot boundaries as the recovery policy decides.
#pragma once

#include "failover/recovery_actions.hpp"
#include "loop/service.hpp"
#include "run/rank_context.hpp"

#include <cstdint>
#include <span>

namespace tenon::train {

class EmulatedOutages final : public Service {
 public:
  EmulatedOutages(const RankContext& rank, RecoveryActions& recovery)
      : rank_(rank), recovery_(recovery), failures_(*rank.emulated) {}

  void accessed(const RowGradient& rows) override {
    failures_.accessed(rows.parameter, rows.ids, rows.counts);
  }
  void plan(Boundary& due) override;
  void at_boundary(Boundary& due) override;

 private:
  void answer(const config::EmulatedFailure& failure, std::int64_t slot);
  void restore(const FailureDecision& decision, std::span<const int> shards, FailedEvent& record) const;

  RankContext rank_;
  RecoveryActions& recovery_;
  EmulatedFailures& failures_;
  bool due_ = false;
};

}  // namespace tenon::train
