// Recovery `multilevel` (contract recovery/1): checkpoints on several levels, each with its own cadence, as
// in SCR (SC 2010) and VELOC (IPDPS 2019). Frequent saves go where they are cheap and survive little, rare
// ones where they survive everything: the memory of neighbours (an inner policy), a local folder, the run's
// own folder. The core reads the newest of them whose every byte matches its digest. This file decides when
// each level is saved and which one serves; it copies and writes nothing.
#pragma once

#include <tenon/host.hpp>
#include <tenon/identities.hpp>
#include <tenon/plugin.hpp>
#include <tenon/save_places.hpp>
#include <tenon/sdk/recovery_options.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace tenon::recovery_multilevel {

class MultiLevel final : public RecoveryBase, public SavePlaces, public ComponentIdentities {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::component("memory", "recovery/1")
          .doc_text("policy that keeps copies in memory, e.g. peer_memory; absent: no such level"),
      option::path("local_folder", nullptr)
          .made_later()
          .doc_text("folder on the machine's own disk; each run has its own below it; absent: no such level"),
      option::integer("local_every", "10")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots between saves to the local folder; fewer than every"),
      option::integer("local_keep", "2").between(2, 1000000).doc_text("checkpoints kept in the local folder"),
      option::integer("every", "100")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots between saves to the run's folder, which all ranks share"),
      option::keep_checkpoints(),
      option::save_in_background(),
      option::save_at_end(),
  };
  static constexpr ComponentInfo kInfo{
      .id = "multilevel",
      .summary = "checkpoints in memory, on local disks and in the shared folder, each with its own cadence",
      .options = kOptions};
  MultiLevel(const Options& options, Host& host);

  // The policy in memory answers these.
  void bind(RecoveryHost& host) override;
  void start(const RecoveryStart& start) override;
  void before_slot(SlotStart& slot) override;
  void after_slot(const SlotOutcome& outcome) override;
  void on_evaluation(std::int64_t slot, std::string_view metric, double value) override;
  BoundaryPlan plan_boundary(const SaveMoment& moment) override;
  void at_boundary(const SaveMoment& moment) override;
  bool answers_non_finite() const override;
  /// -1 where a committed checkpoint is newer than the copies.
  std::int64_t rejoin() override;
  void bring_back(std::int64_t slot) override;
  void state(StateVisitor& visitor) override;

  /// Pure in the moment, so that a resumed run saves where an uninterrupted one does.
  SavePlan plan_save(const SaveMoment& moment) override;
  void on_save(const SaveResult& result) override;
  FailureDecision on_failure(const FailureEvent&) override {
    return {.action = FailureAction::kRollBack, .from_slot = -1};
  }
  void account(const std::function<void(std::string_view, double)>& sink) override;
  int keep() const override { return keep_; }
  void* query(std::string_view interface_id) override;

  std::span<const SavePlace> places() const override;
  /// The run's own folder where both are due.
  int place(const SaveMoment& moment) const override;
  std::span<const Identity> identities() const override;

 private:
  static constexpr int kLocal = 0;  ///< index of the local folder among the places

  /// The newest checkpoint that this process knows to be committed. It outlives the policy when other ranks
  /// die.
  std::int64_t& newest_committed();

  Host& host_;
  Recovery* memory_;  ///< null without this level
  std::string folder_;
  std::optional<SavePlace> local_;  ///< absent without this level; views of folder_
  std::int64_t local_every_, every_;
  int keep_;
  bool background_, save_at_end_;
  RecoveryHost* core_ = nullptr;
};

}  // namespace tenon::recovery_multilevel
