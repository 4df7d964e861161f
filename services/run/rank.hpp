// One rank of a run: it restores what it begins with, runs slots, and acts at slot boundaries (evaluate,
// save, stop); or it serves.
#pragma once

#include "failover/emulated_outages.hpp"
#include "failover/recovery_actions.hpp"
#include "failover/recovery_phases.hpp"
#include "failover/survivor.hpp"
#include "loop/slot_queue.hpp"
#include "loop/worker.hpp"
#include "power/run_power.hpp"
#include "record/saves.hpp"
#include "record/witness_recorder.hpp"
#include "run/canary.hpp"
#include "run/on_policy.hpp"
#include "run/prefetch.hpp"
#include "run/repetition.hpp"
#include "run/trainer.hpp"
#include "run/world.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon::train {

// The services of a rank: made together, called in one order, which is the same on all ranks because they
// communicate.

class RankServices {
 public:
  RankServices(World& world, int rank, Trainer& trainer, Progress& progress);

  /// In the order in which they are called.
  std::span<Service* const> all() const { return all_; }
  RecoveryActions& actions() const { return *actions_; }
  RecoveryPhases& phases() const { return *phases_; }
  Saves& saves() const { return *saves_; }
  Survivor& survivor() const { return *survivor_; }
  Repetition& repetition() const { return *repetition_; }
  Canary& canary() const { return *canary_; }
  OnPolicy& on_policy() const { return *on_policy_; }
  Prefetch& prefetch() const { return *prefetch_; }
  /// Null without [emulate].
  EmulatedFailures* emulated() const { return emulated_.get(); }

 private:
  std::unique_ptr<EmulatedFailures> emulated_;
  std::unique_ptr<RecoveryActions> actions_;
  std::unique_ptr<RecoveryPhases> phases_;
  std::unique_ptr<Saves> saves_;
  std::unique_ptr<Survivor> survivor_;
  std::unique_ptr<Repetition> repetition_;
  std::unique_ptr<Canary> canary_;
  std::unique_ptr<OnPolicy> on_policy_;
  std::unique_ptr<Prefetch> prefetch_;
  std::unique_ptr<WitnessRecorder> witness_;  ///< null without [run] witness_every
  std::unique_ptr<EmulatedOutages> outages_;  ///< null without [emulate]
  std::vector<Service*> all_;
};

// The rank.

class Rank final : private SlotQueue::Owner {
 public:
  /// Builds everything up to the first slot. Collective over all ranks; leaves nothing on disk.
  Rank(World& world, int rank);

  /// Once the world has a folder: restores what it found, then runs to the end, or to a failure after which
  /// all ranks go back to an earlier checkpoint. Returns whether that is so: the caller builds the rank
  /// again.
  bool run();
  const Trainer& trainer() const { return trainer_; }
  OnPolicy& on_policy() const { return services_->on_policy(); }
  /// Writes why the run failed, and where this rank was, into its log, if there is one already.
  void log_failure(const std::string& why) {
    if (with_.log == nullptr) return;
    with_.host.log(LogLevel::kError, "the run failed" + with_.account.stuck_text() + ": " + why);
  }
  Survivor& survivor() { return services_->survivor(); }
  int keep() const { return parts_.recovery->keep(); }
  /// Where the policy keeps checkpoints. Throws Error(kPlugin) for places that no store can be made of.
  KeptPlaces kept() const;
  /// Whether the policy, had everything failed, would go on from rows of several moments.
  bool continues_mixed() const { return services_->actions().continues_mixed(); }

 private:
  // SlotQueue::Owner
  Boundary due(std::int64_t slot) override;
  void act(Boundary& due) override;
  bool ends(const Boundary& due) const override { return due.stop || services_->actions().rolls_back(); }
  SlotQueue::Ticket take(std::int64_t slot) override;

  void open_folder();
  Manifest describe() const;
  void restore();
  /// Takes over the state of a checkpoint, and its slot.
  void take_state(CheckpointReader& reader, Continued continued);
  void train(const RunInfo& info);
  void loop(Worker& worker);
  void run_workers();
  SlotResult run_slot(Worker& worker, const SlotQueue::Ticket& ticket);
  bool calibration_due(std::int64_t slot);
  /// Collective: all ranks count with the medians of what they measured.
  void calibrate();
  void report_accesses();
  void report(const RowGradient& rows);
  void finish_slot(const SlotQueue::Ticket& ticket, const SlotResult& result);
  bool budget_spent() const;
  /// A replay ends before `slot`.
  bool replayed(std::int64_t slot) const {
    return world_.request.replay_to >= 0 && slot > world_.request.replay_to;
  }
  void evaluate(Boundary& due);
  void record_progress();
  void leave();
  void finish();
  WallTimeBreakdown* wall_time() const { return world_.wall_time(rank_); }

  World& world_;
  int rank_;
  std::uint32_t epoch_;
  Trainer trainer_;
  Instruments& with_;
  Parts& parts_;
  Counters& counters_;
  MetricLines& lines_;
  SlotQueue slots_;
  std::unique_ptr<RankServices> services_;
  std::unique_ptr<RunPower> power_;  ///< null without [power]
  bool stands_still_ = false;        ///< paused at the last boundary, until the hashes are taken
};

// A rank with the role `server`: it makes the sync component alone and lets it serve the trainers.

struct World;

/// Runs server rank `rank` of `world` to its end. Throws Error(kConfig) when the strategy places nothing on
/// servers.
void run_server(World& world, int rank);

}  // namespace tenon::train
