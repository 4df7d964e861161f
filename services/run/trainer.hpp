// Objects with which one rank trains, built once from the validated configuration: components, groups,
// executors, weights and optimizer state, workers. It knows nothing of slots.
#pragma once

#include "generate/stepwise_generator.hpp"
#include "loop/evaluation.hpp"
#include "loop/instruments.hpp"
#include "loop/observers.hpp"
#include "loop/traced_communicator.hpp"
#include "loop/worker.hpp"
#include "models/stored_models.hpp"
#include "record/metric_lines.hpp"
#include "record/saved_shape.hpp"
#include "run/initial_state.hpp"
#include "run/rank_state.hpp"
#include "run/row_traffic.hpp"
#include "run/table_counts.hpp"
#include "run/table_places.hpp"
#include "run/table_planner.hpp"
#include "run/world.hpp"

#include <tenon/device.hpp>
#include <tenon/on_policy.hpp>
#include <tenon/transport.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon::train {

// The communicators of one rank that do not depend on weights: along the axes of its mesh, over all of
// it, and between the replicas.

class RankGroups {
 public:
  /// `watch`: of communicators in which layers and optimizers wait.
  RankGroups(World& world, int rank, Device& device, const CommunicatorWatch& watch);

  /// For layers.
  Mesh& mesh() { return mesh_; }
  std::span<const int> coordinates() const { return mesh_.place().coordinates; }
  /// For norms and hashes; null when the mesh has one rank.
  Communicator* all() const { return all_.get(); }
  /// Between the replicas, for layers; null when there is one.
  Communicator* replicas() const { return lookups_.get(); }

 private:
  std::vector<std::unique_ptr<Communicator>> axes_;
  std::unique_ptr<Communicator> all_, model_, lookups_;
  Mesh mesh_;
};

// The trainer.

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

class Trainer {
 public:
  /// Collective over all ranks; leaves nothing on disk.
  Trainer(World& world, int rank);
  ~Trainer();

  int replica() const { return replica_; }
  Instruments& instruments() { return with_; }
  Counters& counters() { return counters_; }
  MetricLines& lines() { return lines_; }
  Parts& parts() const { return *parts_; }
  Observers& observers() const { return *observers_; }
  RankGroups& groups() const { return *groups_; }
  RankReplica& weights() const { return *weights_; }
  RowExchange& rows() const { return *rows_; }
  Updater& updater() const { return *updater_; }
  /// Null where rows travel in step.
  RowTraffic* requests() const { return requests_.get(); }
  std::span<const std::unique_ptr<Worker>> workers() const { return workers_; }
  /// First that of the run's own data, then those of [[evaluate]].
  std::span<const std::unique_ptr<Evaluator>> evaluators() const { return evaluators_; }
  /// Files of all data: what the run trains on, then what it is evaluated on alone.
  std::vector<DataSource> data_sources() const;
  RankState& state() const { return *state_; }
  /// The run's data set, where it draws its samples from the model; else null.
  OnPolicyDataset* on_policy() const { return on_policy_; }
  /// The model is a language model.
  bool speaks() const;
  /// For a model that speaks and that this rank holds whole; it has no weights yet. `made` hears of each of
  /// its executors before it runs.
  std::unique_ptr<generate::StepwiseGenerator> make_generator(std::function<void(Executor&)> made);
  /// Brings the sites of an executor of the generator to the state of those that train.
  void share_sites(Executor& with) const;
  /// What [init] gave; null where the weights were drawn or come from a checkpoint of this run.
  InitialState* initial() const { return initial_.get(); }

  /// The weights that the run stands for: those of val/*, `weights_hash`, and what other commands read.
  ParameterSet& evaluated() const { return parts_->sync->evaluation_parameters(); }
  /// Replicas hold equal weights and optimizer state.
  bool shares_weights() const;
  RunShape shape() const;
  /// Samples of all replicas in a slot of which each takes its part.
  std::int64_t slot_samples() const;
  std::vector<ParameterInfo> row_tables() const;
  /// Throws Error(kConfig) when `reader` holds the state of another model.
  void check(const CheckpointReader& reader) const;
  /// Facts for `tenon check`: parameters, memory, unquantized sites.
  std::vector<std::string> facts() const;
  /// What a person would want to know before the run: parts of it that never come to act.
  std::vector<std::string> warnings() const;
  /// Bytes that this rank holds while it trains: parameter sets, optimizer state, its workers' executors, and
  /// the copy from which checkpoints are written.
  std::int64_t planned_bytes() const;

 private:
  void open_parts();
  /// Throws Error(kConfig) where several workers would write rows of a tier that wants one at a time.
  void refuse_locked_tiers() const;
  void open_evaluated();
  std::string evaluation_place(std::size_t entry) const;
  void make_evaluators();
  std::vector<std::unique_ptr<Executor>> make_executors();
  /// What all executors of this rank have in common.
  ExecutorSpec executor_spec(Host& host) const;
  std::unique_ptr<Executor> make_executor(const GraphSpec& graph, std::size_t worker);
  void require_room_for_workers(const Executor& first, const Executor& second) const;
  void make_weights(const std::vector<ParameterInfo>& parameters);
  std::string layout_text() const;
  void start_weights();
  void make_workers(std::vector<std::unique_ptr<Executor>> executors);
  void make_state();
  /// Throws Error(kConfig) where this run cannot go on from what it is a fork of.
  void check_fork() const;
  void add_table_facts(std::vector<std::string>& lines) const;
  void add_evaluation_facts(std::vector<std::string>& lines) const;

  World& world_;
  int rank_, replica_, mesh_index_;
  Instruments with_;
  Counters counters_;
  MetricLines lines_;
  models::StoredModelPaths stored_models_;  ///< before the components, which may hold models of it
  std::unique_ptr<Parts> parts_;
  std::unique_ptr<Observers> observers_;
  OnPolicyDataset* on_policy_ = nullptr;
  /// The generator's policy: that of the run counts and remembers its own sites.
  std::unique_ptr<config::CheckedComponent> generating_;
  std::unique_ptr<Part<Precision>> generating_precision_;
  std::unique_ptr<LayerFactory> layers_;
  std::unique_ptr<RankGroups> groups_;
  std::unique_ptr<TablePlanner> planner_;
  std::unique_ptr<TablePlaces> places_;  ///< before the tables
  std::unique_ptr<RankReplica> weights_;
  std::unique_ptr<RowExchange> rows_;
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<RunTableCounts> table_counts_;  ///< null without tables
  std::unique_ptr<RowTraffic> requests_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Evaluator>> evaluators_;
  std::unique_ptr<RankState> state_;
  std::unique_ptr<InitialState> initial_;
  SyncEnd sync_end_;  ///< last: ends first
};

}  // namespace tenon::train
