// Carries out the decisions of a rank's recovery policy: restores lost rows from a checkpoint, or goes back
// to one.
#pragma once

#include "record/recovery_log.hpp"
#include "run/rank_context.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/recovery.hpp>
#include <tenon/save_places.hpp>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::train {

/// "roll_back"
std::string_view action_name(FailureAction action);

class RecoveryActions {
 public:
  explicit RecoveryActions(const RankContext& rank) : rank_(rank) {}

  /// Returns the domains of the emulated cluster, else the ranks.
  FailureDomains domains() const;
  /// Whether the policy, had everything failed, would go on from rows of several moments.
  bool continues_mixed() const;
  /// Counts that the policy keeps of itself.
  std::map<std::string, double> account() const;
  /// Decoders of the policy, if it has encodings of its own.
  void add_decoders(CheckpointReader& reader) const;
  /// Collective. Restores lost rows; `holds`: this rank has some of them.
  RestoredRows restore_lost(const FailureDecision& decision, std::span<const int> shards, bool holds,
                            const RankState::IsLost& is_lost, FailedEvent& record) const;
  /// Collective. The rank ends and is built again at the returned slot; what happened since goes from the
  /// metrics. `asked`: the policy planned it, without a failure.
  std::int64_t roll_back(const FailureDecision& decision, std::int64_t slot, FailedEvent& record,
                         bool asked = false);
  /// Collective. The checkpoint of `slot` is not to be believed: it is set aside, and all ranks are built
  /// again with the next older one. Throws Error(kRun) on rank 0 where the attempt has had its share of
  /// these.
  void fall_back(std::int64_t slot, const std::string& reason);
  bool rolls_back() const { return rolls_back_; }
  /// A run that is continued from rows of several moments has lost some of all shards.
  void account_resumed(const CheckpointReader& reader) const;
  /// Rank 0, at the end of the run: what recovery has cost.
  void end(std::string_view status) const;

 private:
  /// A generation that all ranks go on from; slot -1: none.
  struct Agreed {
    std::int64_t slot = -1;
    int place = kRunFolder;
  };
  Agreed agreed_checkpoint(const FailureDecision& decision, bool consistent_only) const;
  /// Rank 0: the newest checkpoint that is whole, in place of those in `rejected`.
  Agreed next_checkpoint(std::vector<RejectedGeneration> rejected, bool consistent_only,
                         std::int64_t newest) const;
  Agreed chosen_checkpoint(std::int64_t slot, bool consistent_only) const;
  /// Rank 0's finding, on all ranks.
  Agreed shared(const Agreed& found) const;
  void report_restored(int shard, std::int64_t slot, std::int64_t samples) const;

  RankContext rank_;
  bool rolls_back_ = false;
};

}  // namespace tenon::train
