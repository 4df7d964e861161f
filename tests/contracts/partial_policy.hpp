// The recovery policy of lost_owner_test.cpp and row_increments_test.cpp.
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>

#include <set>

namespace rehearsal {

/// Complete at slot 4, then every 2 slots the rows that were accessed since the last save.
class Partial final : public tenon::RecoveryBase {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "partial", .summary = "restores the lost rows alone"};
  explicit Partial(const tenon::Options&) {}
  void on_accesses(int table, std::span<const std::int64_t> ids, std::span<const std::uint32_t>) override {
    table_ = table;
    accessed_.insert(ids.begin(), ids.end());
  }
  tenon::SavePlan plan_save(const tenon::SaveMoment& moment) override {
    tenon::SavePlan plan;
    plan.save = moment.slot >= 4 && moment.slot % 2 == 0;
    plan.everything = moment.slot == 4;
    plan.background = false;
    if (!plan.save) return plan;
    plan.tables = {{table_, false, {accessed_.begin(), accessed_.end()}}};
    plan.base_slot = plan.everything ? -1 : last_;
    last_ = moment.slot;
    accessed_.clear();
    return plan;
  }
  tenon::FailureDecision on_failure(const tenon::FailureEvent&) override {
    return {.action = tenon::FailureAction::kContinuePartial};
  }
  void on_restored(const tenon::RestoredShard& shard) override {
    lost_ += static_cast<double>(shard.samples_now - shard.checkpoint_samples) /
             (128 * 2);  // samples of the run, owners
  }
  int keep() const override { return 2; }
  void state(tenon::StateVisitor& visitor) override {
    visitor.real("portion_of_lost_samples", lost_);
    visitor.integer("last", last_);
  }
  void* query(std::string_view id) override { return id == "rehearsal.lost/1" ? &lost_ : nullptr; }

 private:
  std::set<std::int64_t> accessed_;
  int table_ = 0;
  std::int64_t last_ = -1;
  double lost_ = 0;
};

}  // namespace rehearsal
