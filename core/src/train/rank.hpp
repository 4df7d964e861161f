// One rank of a run: it builds its parts, runs slots, and acts at slot boundaries (evaluate, save, stop).
#pragma once

#include "observe/rank_log.hpp"
#include "observe/recovery_log.hpp"
#include "train/emulated_failures.hpp"
#include "train/evaluation.hpp"
#include "train/metric_lines.hpp"
#include "train/observers.hpp"
#include "train/pass_watch.hpp"
#include "train/peer_copies.hpp"
#include "train/rank_state.hpp"
#include "train/row_traffic.hpp"
#include "train/saved_shape.hpp"
#include "train/saves.hpp"
#include "train/worker.hpp"
#include "train/world.hpp"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace tenon::train {

/// The replica outlives the strategy, whose actors may use it until they are joined.
struct SyncEnd {
  Parts* parts = nullptr;
  SyncEnd() = default;
  SyncEnd(const SyncEnd&) = delete;
  SyncEnd& operator=(const SyncEnd&) = delete;
  ~SyncEnd() {
    if (parts != nullptr) parts->sync.reset();
  }
};

class Rank final {
 public:
  /// Builds everything up to the first slot. Collective over all ranks; leaves nothing on disk.
  Rank(World& world, int rank);
  ~Rank();

  /// Once the world has a folder: restores what it found, then runs to the end, or to a failure after which
  /// all ranks go back to an earlier checkpoint. Returns whether that is so: the caller builds the rank
  /// again.
  bool run();
  /// After an interruption that the run outlives: puts a copy of the state into the process's Survival.
  void hold();
  /// Before the folder is opened again: whether the run goes on from what ranks hold. Collective.
  void meet_survivors();
  int keep() const { return parts_->recovery->keep(); }
  /// Whether the policy, had everything failed, would go on from rows of several moments.
  bool continues_mixed();
  /// Throws Error(kConfig) when `reader` holds the state of another model.
  void check(const CheckpointReader& reader) const;
  /// Facts for `tenon check`: parameters, memory, kept sites.
  std::vector<std::string> facts() const;
  /// Bytes that this rank holds while it trains: parameter sets, optimizer state, its workers' executors, and
  /// the copy from which checkpoints are written.
  std::int64_t planned_bytes() const;

 private:
  struct Ticket {
    std::int64_t slot = 0;
    std::int64_t position = 0;
  };
  struct Boundary {
    bool evaluate = false, stop = false, failure = false, diverged = false, copies = false;
    bool interrupted = false;  ///< by a signal, which is also a stop
    bool can_save = false;
    SavePlan save;
    SaveMoment moment;
    bool quiet() const { return evaluate || stop || failure || diverged || copies || save.save; }
  };

  std::unique_ptr<Executor> make_executor(const GraphSpec& graph, std::size_t worker);
  void report_accesses();
  // rank_survival.cpp
  std::string why_not_survived() const;
  HeldState held_now(const SlotMark* mark);
  void take_back(HeldState& held);
  OverheadLedger* ledger() const { return world_.ledger(rank_); }
  void rejoin();
  void share_state(const Survivors& met);
  void share_components(const Survivors& met, Communicator& group);
  bool is_lost_with_its_rank(int parameter) const;
  bool loses_rows() const;
  std::int64_t meet_deaths(const Survivors& met, FailedEvent& record);
  void restore_dead(const FailureDecision& decision, const Survivors& met, FailedEvent& record);
  void go_back_to_copies(double began_s);
  void log_state();
  void log_deaths(FailedEvent& record, double began_s, std::int64_t repeated);
  void copy_to_peers();
  void restore_from_peers();
  // rank_failure.cpp
  void bind_recovery();
  FailureDomains failure_domains() const;
  void report_restored(int shard, std::int64_t slot, std::int64_t samples);
  std::map<std::string, double> recovery_account();
  std::int64_t bytes_of_all_ranks();
  void meet_failures(std::int64_t slot);
  void watch_divergence(const Ticket& ticket, const SlotResult& result);
  void meet_divergence(std::int64_t slot);
  void begin_again_after_divergence();
  void meet(const EmulatedFailure& failure, std::int64_t slot);
  std::int64_t agreed_checkpoint(const FailureDecision& decision, bool consistent_only);
  void restore_shards(const FailureDecision& decision, std::span<const int> shards, FailedEvent& record);
  RestoredRows restore_lost(const FailureDecision& decision, std::span<const int> shards, bool holds,
                            const RankState::IsLost& is_lost, FailedEvent& record);
  std::int64_t roll_back(const FailureDecision& decision, std::int64_t slot, FailedEvent& record);
  void leave();
  void account_resumed(const CheckpointReader& reader);
  RunShape shape() const;
  /// Samples of all replicas in a slot of which each takes its part.
  std::int64_t slot_samples() const;
  void build();
  void open_parts();
  std::vector<std::unique_ptr<Executor>> make_executors();
  void make_weights(const std::vector<ParameterInfo>& parameters);
  void make_workers(std::vector<std::unique_ptr<Executor>> executors);
  void make_state();
  /// Replicas hold equal weights and optimizer state.
  bool shares_weights() const;
  void require_room_for_workers(const Executor& first) const;
  void open_axes();
  std::vector<ParameterInfo> row_tables() const;
  void add_table_facts(std::vector<std::string>& lines) const;
  std::string layout_text() const;
  void start_weights();
  void open_folder();
  void restore();
  Manifest describe() const;
  std::string nondeterminism() const;
  /// Why no slot is computed twice; "" where one is.
  std::string why_not_repeated() const;
  /// Collective: what the repetition showed, for the record of the run.
  void record_repetition();
  void loop(Worker& worker);
  void run_workers();
  std::optional<Ticket> claim();
  void pass_boundary(std::unique_lock<std::mutex>& lock);
  Boundary boundary(std::int64_t slot);
  void act(Boundary& boundary, std::int64_t slot);
  void evaluate(Boundary& boundary, std::int64_t slot);
  static void force_save(Boundary& boundary);
  void keep_all(Boundary& boundary) const;
  void finish_slot(const Ticket& ticket, const SlotResult& result);
  SlotResult run_slot(Worker& worker, const Ticket& ticket, const std::function<std::int64_t()>& next_update);
  void warn_of_repetition(const Worker& worker, std::int64_t slot);
  bool calibration_due(std::int64_t slot);
  /// Collective: all ranks count with the medians of what they measured.
  void calibrate();
  void log_recovery(std::string_view status);
  /// Seconds of the process, of which each belongs to one name.
  std::map<std::string, double> wall_split() const;
  void record_progress();
  void finish();
  /// The weights that the run stands for: those of val/*, `weights_hash`, and what other commands read.
  ParameterSet& evaluated() { return parts_->sync->evaluation_parameters(); }

  World& world_;
  int rank_, replica_, grid_index_;
  std::uint32_t epoch_;
  std::unique_ptr<RankLog> log_;
  PauseGate gate_;
  RankHost host_;
  WatchedRank watched_;
  SpanRecorder spans_;
  TimeAccount account_;
  Distributions distributions_;
  Faults faults_;
  Counters counters_;
  MetricLines lines_;
  CommunicatorWatch watch_;
  CommunicatorWatch layer_watch_;  ///< of communicators in which layers and optimizers wait
  std::unique_ptr<Parts> parts_;
  std::unique_ptr<Observers> observers_;
  std::unique_ptr<LayerFactory> layers_;
  std::vector<std::unique_ptr<Communicator>> axes_;
  std::unique_ptr<Communicator> grid_;   ///< for norms and hashes; null when the grid has one rank
  std::unique_ptr<Communicator> model_;  ///< the same ranks, for layers
  ModelGrid model_grid_;
  std::unique_ptr<Communicator> lookups_;  ///< the replicas, for layers; null when there is one
  std::unique_ptr<RankReplica> weights_;
  std::unique_ptr<RowExchange> rows_;
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<RowTraffic> requests_;  ///< null where rows travel in step
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<RankState> state_;
  std::unique_ptr<Saves> saves_;
  std::unique_ptr<PeerCopies> peers_;           ///< null unless copies are made
  DivergenceWatch* divergence_ = nullptr;       ///< of the recovery policy, null when it has none
  std::unique_ptr<EmulatedFailures> emulated_;  ///< null without [emulate]

  std::mutex mutex_;  ///< guards what follows when there are several workers
  ClockEvent quiet_;
  std::int64_t next_slot_ = 0, first_slot_ = 0;
  std::int64_t boundary_done_ = -1;
  int in_flight_ = 0;      ///< slots that workers are in
  std::size_t ended_ = 0;  ///< workers beside the first
  bool acting_ = false;    ///< some worker is at a slot boundary
  bool done_ = false;
  bool rolls_back_ = false;
  bool has_state_ = false;       ///< that of first_slot_ or later
  bool boundary_again_ = false;  ///< what is due before first_slot_ was interrupted
  bool marks_slots_ = false;     ///< deaths of other ranks may interrupt them
  SlotMark mark_;
  bool diverged_ = false;      ///< in the slot before this boundary
  bool stands_still_ = false;  ///< paused at the last boundary, until the hashes are taken
  double stall_s_ = 0;
  SyncEnd sync_end_;  ///< last: ends first
};

}  // namespace tenon::train
