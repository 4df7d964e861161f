// Recovery `cpr` (contract recovery/1): after a failure the survivors keep their state, and only the lost
// rows return to their newest saved values. The save interval follows from the portion of lost samples that
// the user accepts; important rows are saved more often. Where partial recovery does not pay, it uses full
// recovery at Young's interval.
#pragma once

#include "controller.hpp"
#include "trackers.hpp"

#include <tenon/identities.hpp>
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/sdk/recovery_options.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tenon::recovery_cpr {

class Cpr final : public RecoveryBase, public SaveSelector, private IdentitiesOf<Cpr> {
 public:
  static constexpr const char* kTrackers[] = {"vanilla", "scar", "mfu", "ssu", nullptr};
  static constexpr const char* kPartial[] = {"auto", "always", "never", nullptr};
  static constexpr const char* kIntervals[] = {"pls", "young", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::text("tracker", "'ssu'")
          .one_of(kTrackers)
          .doc_text("which rows are saved first: most read (mfu), a sample of those read (ssu), farthest "
                    "moved (scar); vanilla saves everything at once"),
      option::real("target_pls", "0.1")
          .between(1e-9, 1)
          .doc_text("portion of lost samples (PLS) that is accepted over the whole run"),
      option::text("partial", "'auto'")
          .one_of(kPartial)
          .doc_text("auto: partial recovery where it costs less than full recovery"),
      option::text("interval", "'pls'")
          .one_of(kIntervals)
          .doc_text("save interval of partial recovery: from target_pls, or by Young's formula"),
      option::real("mtbf_seconds", nullptr)
          .at_least(0.001)
          .in_unit("s")
          .doc_text("mean time between failures of the job; absent: [emulate]'s, else a day"),
      option::boolean("estimate_mtbf", "true")
          .doc_text(
              "update mtbf_seconds by the failures seen; the given value weighs as much as one failure"),
      option::real("save_seconds", nullptr)
          .at_least(0)
          .in_unit("s")
          .doc_text("cost of a complete save; absent: [emulate]'s, else measured"),
      option::real("load_seconds", nullptr)
          .at_least(0)
          .in_unit("s")
          .doc_text("cost of loading; absent: [emulate]'s, else that of a save"),
      option::real("restart_seconds", nullptr)
          .at_least(0)
          .in_unit("s")
          .doc_text("cost of a replacement; absent: [emulate]'s, else 10"),
      option::integer("lost", "1").between(1, 1 << 20).doc_text("shards that a failure is expected to lose"),
      option::integer("parts", "8")
          .between(1, 1000)
          .doc_text("a priority save writes 1 / parts of the rows of large tables, parts times per interval"),
      option::real("large_share", "0.99")
          .between(0, 1)
          .doc_text(
              "the fewest tables that hold this share of the bytes are saved by priority, the others whole"),
      option::real("budget", "2")
          .at_least(1)
          .doc_text("beyond this multiple of target_pls: a complete save at once, then full recovery"),
      option::integer("rebase", "64")
          .between(1, 1000000)
          .doc_text("priority saves between two complete checkpoints"),
      option::keep_checkpoints(),
      option::save_in_background(),
      option::save_at_end(),
  };
  static constexpr ComponentInfo kInfo{
      .id = "cpr",
      .summary = "partial recovery: only lost rows are rolled back; important rows are saved more often",
      .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "where nothing fails, saving changes no weight",
       .options = "tracker = 'mfu'\nmtbf_seconds = 0.01\ntarget_pls = 0.01\npartial = 'always'\nsave_seconds "
                  "= 0.0001",
       .other = "type = 'none'"},
  };
  explicit Cpr(const Options& options);

  void bind(RecoveryHost& host) override;
  /// A segment begins without a plan_save of its first slot.
  void start(const RecoveryStart& start) override { slot_ = start.slot; }
  void on_accesses(int table, std::span<const std::int64_t> ids,
                   std::span<const std::uint32_t> counts) override;
  SavePlan plan_save(const SaveMoment& moment) override;
  FailureDecision on_failure(const FailureEvent& failure) override;
  void on_restored(const RestoredShard& shard) override;
  int keep() const override { return keep_; }
  void state(StateVisitor& visitor) override;
  void* query(std::string_view interface_id) override;
  bool save_due(const SaveMoment& moment) override;
  void select(const SaveMoment& moment, SavePlan& plan) override;
  void on_save(const SaveResult& result) override;
  void account(const std::function<void(std::string_view, double)>& sink) override;

  const Tracker* tracker() const { return tracker_.get(); }
  /// Returns the seconds between full sets of saves; priority saves are `parts` times as frequent.
  double interval() const { return choice_.interval; }

 private:
  bool by_priority() const { return tracker_ != nullptr && choice_.partial; }
  double period() const;
  void choose_tables(const RecoveryContext& context);
  void plan_interval(double elapsed);
  bool passed_due(double seconds);
  SavePlan complete(const SaveMoment& moment);
  SavePlan priority(const SaveMoment& moment);

  std::string tracker_name_, partial_, interval_;
  double target_pls_, budget_, large_share_;
  std::optional<double> mtbf_, save_, load_, restart_;
  bool estimate_, background_, save_at_end_;
  int lost_, keep_;
  std::int64_t parts_, rebase_;

  bool emulated_ = false;
  Costs costs_;
  Shards shards_;
  std::uint64_t seed_ = 1;
  std::int64_t total_samples_ = 0;
  Choice choice_;
  std::vector<TrackedTable> large_;
  std::vector<int> small_;        ///< parameters of tables that are always saved whole
  std::vector<int> large_index_;  ///< by parameter; -1 = not tracked
  double whole_share_ = 0;        ///< share of the tables' bytes that every priority save writes
  std::unique_ptr<Tracker> tracker_;
  LostSamples account_;

  std::int64_t slot_ = 0;           ///< that is trained
  double origin_ = 0;               ///< time in seconds from which saves are counted
  std::int64_t saves_ = 0;          ///< due since the origin
  std::int64_t increments_ = 0;     ///< on the newest complete checkpoint
  std::int64_t whole_samples_ = 0;  ///< at the last time when vanilla would have saved everything
  std::int64_t failures_ = 0;
  bool over_budget_ = false, full_for_good_ = false;
  bool asked_ = false;      ///< by the timer
  bool increment_ = false;  ///< the current save is an increment: counters stay those of its base
};

}  // namespace tenon::recovery_cpr
