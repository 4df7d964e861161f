// Recovery `checknrun` (contract recovery/1): increments of the rows that changed, optionally quantised
// (Check-N-Run, NSDI 2022). Dense parameters and optimizer rows are written unchanged.
#pragma once

#include "dirty_rows.hpp"
#include "increments.hpp"
#include "row_quantiser.hpp"

#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/sdk/recovery_options.hpp>

#include <string>
#include <vector>

namespace tenon::recovery_checknrun {

class CheckNRun final : public RecoveryBase, public SaveSelector, public RowCodec {
 public:
  static constexpr auto kPolicies =
      option::choice<IncrementPolicy>({{"one_shot", IncrementPolicy::kOneShot},
                                       {"consecutive", IncrementPolicy::kConsecutive},
                                       {"intermittent", IncrementPolicy::kIntermittent}});
  static constexpr const char* kBits[] = {"none", "8", "4", "3", "2", "auto", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("every", "100")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots from one checkpoint to the next"),
      option::text("increments", "'intermittent'")
          .one_of(kPolicies)
          .doc_text("one_shot: against the first complete checkpoint; consecutive: against the one before; "
                    "intermittent: against the last complete one, which is renewed when that is cheaper"),
      option::text("bits", "'none'")
          .one_of(kBits)
          .doc_text("per element of f32 rows on disk; none: exact; auto: by expected_restores"),
      option::real("expected_restores", "1")
          .at_least(0)
          .doc_text("with bits = \"auto\": how often the run will be restored"),
      option::boolean("adaptive", "true")
          .doc_text("with 4 bits or fewer: ends of the range drawn in where that lowers the error"),
      option::keep_checkpoints(),
      option::save_in_background(),
      option::save_at_end(),
  };
  static constexpr ComponentInfo kInfo{
      .id = "checknrun",
      .summary = "increments with the rows that changed, optionally in 8 to 2 bits",
      .options = kOptions,
      .capabilities = TENON_CAP_DETERMINISTIC};
  explicit CheckNRun(const Options& options);

  void bind(RecoveryHost& host) override;
  void on_accesses(int table, std::span<const std::int64_t> ids,
                   std::span<const std::uint32_t> counts) override;
  SavePlan plan_save(const SaveMoment& moment) override;
  FailureDecision on_failure(const FailureEvent&) override {
    return {.action = FailureAction::kRollBack, .from_slot = -1};
  }
  int keep() const override { return keep_; }
  void* query(std::string_view interface_id) override;
  void select(const SaveMoment& moment, SavePlan& plan) override;
  void on_save(const SaveResult& result) override;
  void account(const std::function<void(std::string_view, double)>& sink) override;

  std::span<const std::string_view> encodings() const override;
  void encode(std::string_view encoding, TensorView rows, std::vector<std::byte>& out) override;
  void decode(std::string_view encoding, std::span<const std::byte> stored, TensorView rows) override;

 private:
  struct Table {
    int parameter = 0;
    DirtyRows dirty;
    std::vector<std::int64_t> taken;  ///< by the save whose outcome is pending
  };
  std::int64_t every_;
  Increments increments_;
  int bits_;  ///< 0 = exact
  RowFit fit_;
  int keep_;
  bool background_, save_at_end_;
  std::vector<Table> tables_;
  NextSave pending_;
  double complete_bytes_ = 0, written_bytes_ = 0;
};

}  // namespace tenon::recovery_checknrun
