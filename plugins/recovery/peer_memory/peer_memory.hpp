// Recovery `peer_memory` (contract recovery/1): every few slots the state of each rank is copied into the
// memory of its neighbours, as in Gemini (SOSP 2023), and after a death all ranks roll back to the newest
// copies. This is exact for any model and strategy, and reads no disk. Checkpoints cover the case that a rank
// and all its neighbours die.
#pragma once

#include "peer_copies.hpp"
#include "placement.hpp"

#include <tenon/host.hpp>
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/sdk/recovery_options.hpp>

#include <optional>

namespace tenon::recovery_peer_memory {

class PeerMemory final : public RecoveryBase {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("copies", "2")
          .between(2, 1 << 20)
          .doc_text("ranks that hold the state of each, itself among them"),
      option::integer("copy_every", "10")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots from one copy to the next; the work lost in a failure is at most this"),
      option::integer("every", "100")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots from one checkpoint on disk to the next"),
      option::keep_checkpoints(),
      option::save_in_background(),
      option::save_at_end(),
  };
  static constexpr ComponentInfo kInfo{.id = "peer_memory",
                                       .summary = "copies of each rank in the memory of its neighbours",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};
  PeerMemory(const Options& options, Host& host);

  /// Throws Error(kConfig) for several ranks but fewer than copies (a single rank has no neighbour), or for
  /// servers, whose state no rank has.
  void bind(RecoveryHost& host) override;
  /// After a roll-back to copies, the ranks that replace the dead hold none yet.
  void start(const RecoveryStart& start) override;
  BoundaryPlan plan_boundary(const SaveMoment& moment) override;
  void at_boundary(const SaveMoment& moment) override { copy(moment.slot); }
  std::int64_t rejoin() override { return copies_ == nullptr ? -1 : copies_->find(); }
  void bring_back(std::int64_t slot) override { copies_->bring_back(slot); }
  SavePlan plan_save(const SaveMoment& moment) override;
  FailureDecision on_failure(const FailureEvent&) override {
    return {.action = FailureAction::kRollBack, .from_slot = -1};
  }
  void account(const std::function<void(std::string_view, double)>& sink) override;
  int keep() const override { return keep_; }

 private:
  void copy(std::int64_t slot);

  Host& host_;
  int count_;  ///< number of copies
  std::int64_t copy_every_, every_;
  int keep_;
  bool background_, save_at_end_;
  RecoveryHost* core_ = nullptr;
  std::optional<Placement> placement_;
  std::unique_ptr<PeerCopies> copies_;  ///< null if ranks do not outlive each other
};

}  // namespace tenon::recovery_peer_memory
