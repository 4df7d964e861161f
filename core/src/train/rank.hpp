// One rank of a run: it builds its parts, runs slots, and acts at slot boundaries (evaluate, save, stop).
#pragma once

#include "observe/rank_log.hpp"
#include "train/emulated_failures.hpp"
#include "train/emulated_outages.hpp"
#include "train/evaluation.hpp"
#include "train/mesh.hpp"
#include "train/metric_lines.hpp"
#include "train/observers.hpp"
#include "train/pass_watch.hpp"
#include "train/rank_state.hpp"
#include "train/recovery_actions.hpp"
#include "train/recovery_phases.hpp"
#include "train/repetition.hpp"
#include "train/row_traffic.hpp"
#include "train/saved_shape.hpp"
#include "train/saves.hpp"
#include "train/service.hpp"
#include "train/slot_queue.hpp"
#include "train/survivor.hpp"
#include "train/worker.hpp"
#include "train/world.hpp"

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

class Rank final : private SlotQueue::Owner {
 public:
  /// Builds everything up to the first slot. Collective over all ranks; leaves nothing on disk.
  Rank(World& world, int rank);
  ~Rank();

  /// Once the world has a folder: restores what it found, then runs to the end, or to a failure after which
  /// all ranks go back to an earlier checkpoint. Returns whether that is so: the caller builds the rank
  /// again.
  bool run();
  Survivor& survivor() { return *survivor_; }
  int keep() const { return parts_->recovery->keep(); }
  /// Whether the policy, had everything failed, would go on from rows of several moments.
  bool continues_mixed() const { return recovery_->continues_mixed(); }
  /// Throws Error(kConfig) when `reader` holds the state of another model.
  void check(const CheckpointReader& reader) const;
  /// Facts for `tenon check`: parameters, memory, kept sites.
  std::vector<std::string> facts() const;
  /// Bytes that this rank holds while it trains: parameter sets, optimizer state, its workers' executors, and
  /// the copy from which checkpoints are written.
  std::int64_t planned_bytes() const;

 private:
  // SlotQueue::Owner
  Boundary due(std::int64_t slot) override;
  void act(Boundary& due) override;
  bool ends(const Boundary& due) const override { return due.stop || recovery_->rolls_back(); }
  SlotQueue::Ticket take(std::int64_t slot) override;

  std::unique_ptr<Executor> make_executor(const GraphSpec& graph, std::size_t worker);
  void report_accesses();
  void report(const RowGradient& rows);
  /// Why the run cannot go on from what its ranks hold in memory; "" if it can.
  std::string unrecoverable_reason() const;
  OverheadLedger* ledger() const { return world_.ledger(rank_); }
  void leave();
  RunShape shape() const;
  /// Samples of all replicas in a slot of which each takes its part.
  std::int64_t slot_samples() const;
  void build();
  void open_parts();
  std::vector<std::unique_ptr<Executor>> make_executors();
  void make_weights(const std::vector<ParameterInfo>& parameters);
  void make_workers(std::vector<std::unique_ptr<Executor>> executors);
  void make_state();
  void make_services();
  /// Replicas hold equal weights and optimizer state.
  bool shares_weights() const;
  void require_room_for_workers(const Executor& first) const;
  std::vector<ParameterInfo> row_tables() const;
  void add_table_facts(std::vector<std::string>& lines) const;
  std::string layout_text() const;
  void start_weights();
  void open_folder();
  void restore();
  Manifest describe() const;
  void loop(Worker& worker);
  void run_workers();
  bool budget_spent() const;
  void evaluate(Boundary& due);
  void finish_slot(const SlotQueue::Ticket& ticket, const SlotResult& result);
  SlotResult run_slot(Worker& worker, const SlotQueue::Ticket& ticket);
  bool calibration_due(std::int64_t slot);
  /// Collective: all ranks count with the medians of what they measured.
  void calibrate();
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
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<RankReplica> weights_;
  std::unique_ptr<RowExchange> rows_;
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<RowTraffic> requests_;  ///< null where rows travel in step
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<RankState> state_;
  std::unique_ptr<EmulatedFailures> emulated_;  ///< null without [emulate]
  std::unique_ptr<RecoveryActions> recovery_;
  std::unique_ptr<RecoveryPhases> phases_;
  std::unique_ptr<Saves> saves_;
  std::unique_ptr<Survivor> survivor_;
  std::unique_ptr<Repetition> repetition_;
  std::unique_ptr<EmulatedOutages> outages_;  ///< null without [emulate]
  std::vector<Service*> services_;            ///< in the order in which they are called

  SlotQueue slots_;
  bool stands_still_ = false;  ///< paused at the last boundary, until the hashes are taken
  SyncEnd sync_end_;           ///< last: ends first
};

}  // namespace tenon::train
