// Recovery `none` (contract recovery/1): nothing is saved, so a failure ends the run and --resume has nothing
// to read.
#pragma once

#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>

namespace tenon::recovery_basic {

class None final : public Recovery {
 public:
  static constexpr ComponentInfo kInfo{.id = "none",
                                       .summary = "no checkpoints; a failure ends the run",
                                       .capabilities = TENON_CAP_DETERMINISTIC};
  explicit None(const Options&) {}

  void on_accesses(int, std::span<const std::int64_t>, std::span<const std::uint32_t>) override {}
  SavePlan plan_save(const SaveMoment&) override { return {}; }
  FailureDecision on_failure(const FailureEvent&) override {
    return {.action = FailureAction::kAbort, .from_slot = -1};
  }
  void on_restored(const RestoredShard&) override {}
  int keep() const override { return 0; }
  bool needs_commit() const override { return false; }
  void state(StateVisitor&) override {}
  void* query(std::string_view) override { return nullptr; }
};

}  // namespace tenon::recovery_basic
