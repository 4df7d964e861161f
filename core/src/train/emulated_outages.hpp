// Failures of an emulated cluster ([emulate]), answered at slot boundaries as the recovery policy decides.
#pragma once

#include "train/emulated_failures.hpp"
#include "train/metric_lines.hpp"
#include "train/parts.hpp"
#include "train/rank_host.hpp"
#include "train/rank_state.hpp"
#include "train/recovery_actions.hpp"
#include "train/saves.hpp"
#include "train/service.hpp"
#include "train/world.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace tenon::train {

class EmulatedOutages final : public Service {
 public:
  struct Sources {
    int rank = 0;
    RankHost* host = nullptr;
    Parts* parts = nullptr;
    RankState* state = nullptr;
    const Counters* counters = nullptr;
    MetricLines* lines = nullptr;
    Saves* saves = nullptr;
    RecoveryActions* recovery = nullptr;
    EmulatedFailures* failures = nullptr;
  };
  EmulatedOutages(World& world, const Sources& sources) : world_(world), from_(sources) {}

  void accessed(const RowGradient& rows) override {
    from_.failures->accessed(rows.parameter, rows.ids, rows.counts);
  }
  void plan(Boundary& due) override;
  void at_boundary(Boundary& due) override;

 private:
  void answer(const EmulatedFailure& failure, std::int64_t slot);
  void restore(const FailureDecision& decision, std::span<const int> shards, FailedEvent& record) const;

  World& world_;
  Sources from_;
  bool due_ = false;
};

}  // namespace tenon::train
