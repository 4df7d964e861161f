// Recovery `peer_memory` (contract recovery/1): every few slots the state of each rank is copied into the
// memory of its neighbours, as Gemini does (SOSP 2023), and after a death all ranks go back to the newest
// copies: exact, for any model and strategy, and without reading a disk. Checkpoints are for the day when a
// rank and all its neighbours die.
#pragma once

#include "placement.hpp"

#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/recovery_options.hpp>

#include <optional>

namespace tenon::recovery_peer_memory {

class PeerMemory final : public RecoveryBase, public MemoryCopies {
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
  explicit PeerMemory(const Options& options);

  /// Throws Error(kConfig) when there are several ranks, and fewer than copies. One alone has no neighbour.
  void bind(const RecoveryContext& context) override;
  SavePlan plan_save(const SaveMoment& moment) override;
  FailureDecision on_failure(const FailureEvent&) override {
    return {.action = FailureAction::kRollBack, .from_slot = -1};
  }
  bool copies_due(const SaveMoment& moment) override { return moment.slot % copy_every_ == 0; }
  std::vector<int> holders(int rank) override { return placement_->holders(rank); }
  void account(const std::function<void(std::string_view, double)>& sink) override;
  int keep() const override { return keep_; }
  void* query(std::string_view interface_id) override;

 private:
  int copies_;
  std::int64_t copy_every_, every_;
  int keep_;
  bool background_, save_at_end_;
  std::optional<Placement> placement_;
};

}  // namespace tenon::recovery_peer_memory
