// Recovery `peer_memory` (contract recovery/1): every few slots the state of each rank is copied into the
// memory of its neighbours, as in Gemini (SOSP 2023), and after a death all ranks roll back to the newest
// copies. This is exact for any model and strategy, and reads no disk. Checkpoints cover the case that a rank
// and all its neighbours die.
// This file has the times of copies and of saves, and the answer to failures; peer_copies.hpp has the copies,
// and placement.hpp says which rank holds what.
#include "peer_copies.hpp"
#include "placement.hpp"

#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/identities.hpp>
#include <tenon/plugin.hpp>
#include <tenon/recovery.hpp>
#include <tenon/sdk/recovery_options.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tenon::recovery_peer_memory {

class PeerMemory final : public RecoveryBase, private IdentitiesOf<PeerMemory> {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("copies", "2")
          .between(2, 1 << 20)
          .doc_text("number of ranks that hold the state of each rank, including itself"),
      option::integer("copy_every", "10")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots between copies; a failure loses at most this many slots of work"),
      option::integer("every", "100")
          .at_least(1)
          .in_unit("slots")
          .doc_text("slots between checkpoints on disk"),
      option::keep_checkpoints(),
      option::save_in_background(),
      option::save_at_end(),
  };
  static constexpr ComponentInfo kInfo{.id = "peer_memory",
                                       .summary = "copies of each rank in the memory of its neighbours",
                                       .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "where nothing fails, saving changes no weight",
       .options = "every = 3\ncopy_every = 2",
       .other = "type = 'none'"},
  };
  PeerMemory(const Options& options, Host& host);
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
  }

  /// Throws Error(kConfig) for several ranks but fewer than copies (a single rank has no neighbour), or for
  /// servers, whose state no rank has.
  void bind(RecoveryHost& host) override;
  /// After a roll-back to copies, the ranks that replace the dead hold none yet.
  void start(const RecoveryStart& start) override;
  BoundaryPlan plan_boundary(const SaveMoment& moment) override;
  void at_boundary(const SaveMoment& moment) override { copy(moment.slot); }
  std::int64_t rejoin() override;
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

PeerMemory::PeerMemory(const Options& options, Host& host)
    : host_(host),
      count_(static_cast<int>(options.integer("copies"))),
      copy_every_(options.integer("copy_every")),
      every_(options.integer("every")),
      keep_(static_cast<int>(options.integer("keep"))),
      background_(options.boolean("async")),
      save_at_end_(options.boolean("save_at_end")) {}

void PeerMemory::bind(RecoveryHost& host) {
  core_ = &host;
  const RecoveryContext& run = host.run();
  if (run.ranks > 1 && count_ > run.ranks) {
    fail_config("recovery peer_memory: copies = " + std::to_string(count_) + ", but there are " +
                std::to_string(run.ranks) + " ranks; each copy needs a rank of its own");
  }
  placement_.emplace(run.ranks, std::min(count_, run.ranks));
  if (run.servers > 0) {
    fail_config(
        "recovery 'peer_memory' keeps copies of ranks in the memory of other ranks, and what servers hold is "
        "in none of them; set parallel.servers = 0");
  }
  if (run.ranks == 1) return;
  if (!run.outlives) {
    host_.log(LogLevel::kWarning,
              "copies in the memory of other ranks are of use where ranks outlive each other: start them "
              "with tenon launch --restarts R. None are made");
    return;
  }
  std::vector<std::vector<int>> holders;
  for (int rank = 0; rank < run.ranks; ++rank) holders.push_back(placement_->holders(rank));
  copies_ = std::make_unique<PeerCopies>(host, std::move(holders));
}

void PeerMemory::start(const RecoveryStart& start) {
  if (start.from_memory) copy(start.slot);
}

std::int64_t PeerMemory::rejoin() {
  if (copies_ == nullptr) return -1;
  const std::int64_t slot = copies_->find();
  if (copies_->damaged() > 0) {
    host_.log(LogLevel::kError,
              std::to_string(copies_->damaged()) +
                  " copies of ranks in this rank's memory do not match their digests and are "
                  "not used");
  }
  return slot;
}

BoundaryPlan PeerMemory::plan_boundary(const SaveMoment& moment) {
  BoundaryPlan plan;
  plan.acts = copies_ != nullptr && moment.slot % copy_every_ == 0;
  return plan;
}

void PeerMemory::copy(std::int64_t slot) {
  const double began_s = host_.now();
  copies_->exchange(slot);
  core_->report("memory_copy_s", host_.now() - began_s);
}

SavePlan PeerMemory::plan_save(const SaveMoment& moment) {
  SavePlan plan;
  const bool last = moment.slot == moment.steps && save_at_end_;
  plan.save = (moment.slot > 0 && moment.slot % every_ == 0) || moment.requested || last;
  plan.background = background_;
  return plan;
}

void PeerMemory::account(const std::function<void(std::string_view, double)>& sink) {
  sink("copies", count_);
  if (placement_->machines() < 2) return;
  // Probability that no checkpoint is needed when two ranks die together, all pairs equally likely.
  sink("two_deaths_outlived", recovery_probability(placement_->machines(), count_, 2));
}

}  // namespace tenon::recovery_peer_memory

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recovery_peer_memory",
                               .version = "0.1.0",
                               .summary = "copies of each rank in the memory of its neighbours"},
             tenon::recovery_peer_memory::PeerMemory)
