// Building what a rank trains with: components, groups, executors, weights equal on all replicas, workers,
// state. Also its facts for `tenon check`.
#include "run/trainer.hpp"

#include "failover/survivor.hpp"
#include "graph/memory_budget.hpp"
#include "loop/graph_edits.hpp"
#include "loop/traced_communicator.hpp"
#include "loop/update.hpp"
#include "record/saved_shape.hpp"
#include "run/prefetch.hpp"
#include "run/state_io.hpp"

#include <tenon/error.hpp>
#include <tenon/language_model.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sync_extra.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace tenon::train {

// The groups.

RankGroups::RankGroups(World& world, int rank, Device& device, const CommunicatorWatch& watch) {
  const auto& parallel = world.settings.parallel;
  const auto grid_size = static_cast<int>(parallel.ranks_per_replica());
  const int replica = rank / grid_size, place = rank % grid_size;
  const auto open = [&](const std::vector<int>& members, const std::string& name, Purpose purpose) {
    auto opened = world.links.transport->open(rank, {members, name, purpose, world.start.epoch});
    return traced(for_device(std::move(opened), *world.links.transport, device), watch, members, name);
  };
  if (grid_size > 1) {
    std::vector<int> members(grid_size);
    std::iota(members.begin(), members.end(), replica * grid_size);
    all_ = open(members, "grid", Purpose::kStatistics);
    model_ = open(members, "model", Purpose::kModel);
  }
  std::vector<Communicator*> along_axes;
  for (std::size_t axis = 0; axis < parallel.grid.size(); ++axis) {
    axes_.push_back(nullptr);
    if (parallel.grid[axis] > 1) {
      std::vector<int> members, along = mesh_coordinates(place, parallel.grid);
      for (int i = 0; i < parallel.grid[axis]; ++i) {
        along[axis] = i;
        members.push_back(replica * grid_size + mesh_index(along, parallel.grid));
      }
      axes_.back() = open(members, fmt::format("axis{}", axis), Purpose::kModel);
    }
    along_axes.push_back(axes_.back().get());
  }
  mesh_ = Mesh(parallel.grid, place, model_.get(), along_axes, replica);
  if (parallel.ranks == 1) return;
  std::vector<int> peers;
  for (int r = 0; r < parallel.ranks; ++r) peers.push_back(r * grid_size + place);
  const std::string name = fmt::format("lookups#{}", place);
  lookups_ =
      traced(for_device(world.links.transport->open(rank, {peers, name, Purpose::kModel, world.start.epoch}),
                        *world.links.transport, device),
             watch, peers, "lookups");
}

// Memory of a model in this process, computed before it is allocated, so that a table larger than the machine
// is refused with a message and the system does not kill the process. Sums over declared shapes: a table that
// is sharded over the replicas counts once, all else once per replica.

namespace {

using graph::saturating_product;
using graph::saturating_sum;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// Host memory of a table and its optimizer rows, of all ranks that share it.
std::int64_t table_bytes(const ParameterSpec& spec, const Part<Optimizer>& optimizer,
                         const TablePlaces& places) {
  RowMemorySpec rows{.table = spec.name, .last = spec.shape[0], .width = spec.shape[1], .dtype = spec.dtype};
  std::int64_t sum = places.host_bytes(rows);
  auto* const by_rows = optimizer.offered<RowOptimizer>();
  if (by_rows == nullptr || !spec.trainable) return sum;
  for (const RowStateSlot& slot : optimizer.guarded(*by_rows)->row_slots()) {
    const std::string state = std::string("optimizer.") + slot.name;
    rows.state = state;
    rows.width = slot.width == 0 ? spec.shape[1] : slot.width;
    sum = saturating_sum(sum, places.host_bytes(rows));
  }
  return sum;
}

std::int64_t parameter_bytes(const ParameterInfo& info, const Part<Optimizer>& optimizer,
                             const TablePlaces& places, int replicas) {
  const ParameterSpec& spec = info.spec;
  if (spec.role == Role::kRowTable) {
    return saturating_product(table_bytes(spec, optimizer, places),
                              is_sharded(spec, kReplicaAxis) ? 1 : replicas);
  }
  const bool trained = spec.role == Role::kParameter && spec.trainable;
  std::int64_t elements = info.local.elements() * (trained ? 2 : 1);
  for (const StateSlot& slot : optimizer->slots())
    if (trained) elements = saturating_sum(elements, state_shape(slot, info.local).elements());
  return saturating_product(dtype_bytes(spec.dtype, elements), replicas);
}

/// Throws Error(kConfig) that names the largest parameters if weights, gradients and optimizer state of
/// `replicas` replicas in one process take more than `available` bytes.
void require_memory(std::span<const ParameterInfo> parameters, const Part<Optimizer>& optimizer,
                    const TablePlaces& places, int replicas, std::int64_t available) {
  std::int64_t needed = 0;
  std::vector<std::pair<std::int64_t, std::string>> terms;
  for (const ParameterInfo& info : parameters) {
    terms.emplace_back(parameter_bytes(info, optimizer, places, replicas), info.spec.name);
    needed = saturating_sum(needed, terms.back().first);
  }
  if (available <= 0 || needed <= available) return;
  std::sort(terms.rbegin(), terms.rend());
  std::vector<std::string> largest;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, terms.size()); ++i) {
    largest.push_back(
        fmt::format("'{}' {:.2f} GiB", terms[i].second, static_cast<double>(terms[i].first) / kGiB));
  }
  fail_config(fmt::format(
      "the model needs {:.2f} GiB for weights, gradients and optimizer state in this process, and the "
      "machine "
      "has {:.2f} GiB; the largest: {}. Make the model smaller (for tables: a row cap), choose an optimizer "
      "with less state, keep one copy of the tables over the replicas, or place tables in another tier "
      "([tables])",
      static_cast<double>(needed) / kGiB, static_cast<double>(available) / kGiB, fmt::join(largest, ", ")));
}

}  // namespace

// The trainer.

namespace {

HostSpec host_spec(World& world, int rank, int replica) {
  HostSpec spec;
  spec.rank = rank;
  spec.world_size = static_cast<int>(world.settings.parallel.world());
  spec.replica = replica;
  spec.deadline_s = world.settings.run.deadline;
  spec.clock = world.clock.get();
  spec.control = world.links.control.get();
  return spec;
}

FaultSpec fault_spec(World& world, int rank) {
  static const std::vector<config::FaultSettings> kNone;  // of an attempt that is continued
  FaultSpec spec;
  const bool continued =
      (world.request.resume && world.place.generation == 0) || world.request.replay_to >= 0;
  spec.faults = continued ? &kNone : &world.settings.faults;
  spec.first_slot = world.start.faults_from;
  spec.rank = rank;
  spec.clock = world.clock.get();
  spec.control = world.links.control.get();
  spec.deadline_s = world.settings.run.deadline;
  spec.own_process = world.links.transport && world.links.transport->local_ranks().size() == 1 &&
                     world.settings.parallel.world() > 1;
  return spec;
}

std::int64_t arena_bytes(const ParameterSet& set) {
  std::int64_t sum = 0;
  for (int arena = 0; arena < set.arenas(); ++arena) sum += set.arena(arena).bytes();
  return sum;
}

double megabytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / (1024.0 * 1024.0);
}

}  // namespace

Trainer::Trainer(World& world, int rank)
    : world_(world),
      rank_(rank),
      replica_(rank / static_cast<int>(world.settings.parallel.ranks_per_replica())),
      mesh_index_(rank % static_cast<int>(world.settings.parallel.ranks_per_replica())),
      with_(host_spec(world, rank, replica_), fault_spec(world, rank), *world.pass_watch),
      lines_(world, rank, counters_, with_.account, with_.distributions),
      stored_models_("stored model", *world.files, world.registry, with_.host) {
  try {
    open_parts();
    groups_ = std::make_unique<RankGroups>(world_, rank_, *parts_->device, with_.layer_watch);
    std::vector<std::unique_ptr<Executor>> executors = make_executors();
    make_weights(executors.front()->parameters());
    make_workers(std::move(executors));
    make_state();
  } catch (...) {
    rethrow_noted_call();  // while the options live, whose places an error may name
  }
}

// Objects that call layers of the executors end before the executors.
Trainer::~Trainer() {
  if (requests_ != nullptr) requests_->close();
  with_.host.set_table_counts(nullptr);
}

/// A first run may pack gigabytes: an hour by default.
constexpr float kDeadlinesToOpen = 12;

// Opens the components, and refuses combinations that do not work together.
void Trainer::open_parts() {
  const config::CoreSettings& settings = world_.settings;
  const int threads = world_.threads_per_rank();
  set_parallel_threads(threads);
  with_.host.set_sinks(&with_.spans, &lines_);
  with_.host.set_passes(&with_.watched.places());
  with_.host.set_stored_models(&stored_models_);
  parts_ = std::make_unique<Parts>(world_.checked, world_.registry, with_.host);
  observers_ = std::make_unique<Observers>(parts_->observers, with_.host, with_.spans);
  refuse_host_only(parts_->checked, world_.registry, parts_->device);
  parts_->device->open({rank_, threads, settings.device.kernels});
  with_.watched.set_kernels(fmt::format("{}, {} thread(s)", parts_->device->kernel_choice(), threads));
  if (DeviceTransport* reaches = world_.links.transport ? device_transport(*world_.links.transport) : nullptr)
    reaches->attach(rank_, *parts_->device);
  if (settings.parallel.workers > 1 && parts_->device->space() != MemorySpace::kHost) {
    fail_config(fmt::format(
        "parallel.workers: the workers of a replica update its weights in host memory at the same time, and "
        "device '{}' has memory of its own; set [device] type = \"cpu\", or leave parallel.workers out",
        parts_->device.id()));
  }
  parts_->dataset.patient(kDeadlinesToOpen)->open(settings.run.seed_order);
  const DataInfo& data = parts_->dataset->info();
  if (parts_->dataset->batch() > data.train_samples) {
    fail_config(fmt::format("data: a batch of {} samples is larger than the training split, which has {}",
                            parts_->dataset->batch(), data.train_samples));
  }
  on_policy_ = parts_->dataset.offered<OnPolicyDataset>();
  open_evaluated();
  if (settings.parallel.workers > 1 &&
      (!parts_->sync.declares(TENON_CAP_HOGWILD) || !parts_->optimizer.declares(TENON_CAP_HOGWILD))) {
    fail_config(
        fmt::format("parallel.workers = {} needs a sync strategy and an optimizer that tolerate concurrent "
                    "writers; '{}' and '{}' do not both declare 'hogwild'",
                    settings.parallel.workers, parts_->sync.id(), parts_->optimizer.id()));
  }
  if (settings.parallel.workers > 1) refuse_locked_tiers();
  if (settings.parallel.workers > 1 && settings.run.witness_every > 0) {
    fail_config(fmt::format(
        "run.witness_every = {}: the {} workers of a replica update the same weights without locks "
        "(parallel.workers), so no slot has weights of its own to record; set parallel.workers = "
        "1, or run.witness_every = 0",
        settings.run.witness_every, settings.parallel.workers));
  }
}

void Trainer::refuse_locked_tiers() const {
  for (const config::CheckedComponent& component : parts_->checked) {
    if (component.kind != Tier::kKind) continue;
    const std::string tier = first_without(TENON_CAP_HOGWILD, component, world_.registry);
    if (tier.empty()) continue;
    fail_config(fmt::format(
        "{}: parallel.workers = {} write rows at the same time, and {} does not declare 'hogwild'; set "
        "parallel.workers = 1, or choose a tier that declares it",
        component.type_origin.text(), world_.settings.parallel.workers, tier));
  }
}

/// "run.toml:20:1: [[evaluate]] 'code': "
std::string Trainer::evaluation_place(std::size_t entry) const {
  const config::EvaluateSettings& evaluate = world_.settings.evaluate[entry];
  return fmt::format("{}: [[evaluate]] '{}': ", evaluate.origin.text(), evaluate.name);
}

void Trainer::open_evaluated() {
  for (std::size_t i = 0; i < parts_->evaluated.size(); ++i) {
    Part<Dataset>& dataset = parts_->evaluated[i];
    try {
      dataset.patient(kDeadlinesToOpen)->open(world_.settings.run.seed_order);
    } catch (const Error&) {
      try {
        rethrow_noted_call();
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kConfig) throw;
        fail_config(evaluation_place(i) + error.what());
      }
    }
    const DataInfo& trained = parts_->dataset->info();
    const std::int64_t batch = parts_->dataset->batch(), evaluated_batch = dataset->batch();
    const DataInfo& evaluated = dataset->info();
    require_fitting_data(evaluation_place(i), trained, batch, evaluated, evaluated_batch);
  }
}

std::vector<std::unique_ptr<Executor>> Trainer::make_executors() {
  layers_ = make_registry_layers(world_.registry, with_.host);
  with_.host.set_layers(layers_.get());
  // Separate statements, so that an error of the edits is attributed neither to the model nor to the data
  // set.
  const DataInfo& data = parts_->dataset->info();
  with_.host.node_places().set_precision(world_.checked.resolved.root().find("precision"));
  const GraphSpec graph = edit_graph([&] { return parts_->model->build(data); }, data,
                                     world_.checked.model_edits, &with_.host.node_places());
  for (std::size_t i = 0; i < parts_->evaluated.size(); ++i) {
    const DataInfo& evaluated = parts_->evaluated[i]->info();
    const GraphSpec other =
        edit_graph([&] { return parts_->model->build(evaluated); }, evaluated, world_.checked.model_edits);
    require_equal_graphs(evaluation_place(i), data, graph, evaluated, other);
  }
  std::vector<std::unique_ptr<Executor>> executors;
  requests_ = RowTraffic::make(world_, with_.host, replica_);
  for (std::int64_t w = 0; w < world_.settings.parallel.workers; ++w) {
    executors.push_back(make_executor(graph, static_cast<std::size_t>(w)));
    if (w == 1) require_room_for_workers(*executors[0], *executors[1]);
  }
  return executors;
}

void Trainer::make_weights(const std::vector<ParameterInfo>& parameters) {
  const config::CoreSettings& settings = world_.settings;
  ReplicaSpec spec;
  spec.replica = replica_;
  spec.replicas = static_cast<int>(settings.parallel.ranks);
  spec.mesh_index = mesh_index_;
  spec.servers = static_cast<int>(settings.parallel.servers);
  spec.first_server = static_cast<int>(settings.parallel.trainers());
  const auto grid_size = static_cast<int>(settings.parallel.ranks_per_replica());
  for (int r = 0; r < spec.replicas; ++r) spec.peers.push_back(r * grid_size + mesh_index_);
  spec.epoch = world_.start.epoch;
  spec.seed = settings.run.seed;
  spec.buffers = settings.buffers;
  if (auto* const sizes = parts_->sync.offered<BucketSizes>()) {
    const auto first = parts_->sync.guarded(*sizes)->first_bucket_bytes();
    spec.buckets = {first, parts_->sync.guarded(*sizes)->bucket_bytes()};
  }
  spec.device = parts_->device.get();
  spec.host = &with_.host;
  spec.gate = &with_.gate;
  spec.transport = world_.links.transport ? world_.links.transport.get() : nullptr;
  spec.watch = with_.watch;
  planner_ = std::make_unique<TablePlanner>(
      TablePlanner::Setup{world_.checked, *parts_, world_.registry, with_.host, *world_.files}, parameters);
  places_ = std::make_unique<TablePlaces>(settings, *parts_, world_.kept_name(),
                                          !settings.tables.places.empty() && world_.goes_on_from_checkpoint(),
                                          rank_);
  places_->use(*planner_);
  spec.places = places_.get();
  require_memory(parameters, parts_->optimizer, *places_, world_.replicas_here(), usable_memory_bytes());
  weights_ = std::make_unique<RankReplica>(spec, parameters);
  lines_.bind({parts_.get(), weights_.get(), observers_.get(), shares_weights(), slot_samples()});
  rows_ = std::make_unique<RowExchange>(*weights_, shares_weights(), requests_ != nullptr);
  if (rows_->active() && settings.parallel.workers > 1) {
    fail_config(
        "parallel.workers: several workers and several replicas cannot share row tables in this version: "
        "rows travel between replicas in step. Set parallel.workers = 1, or parallel.ranks = 1, or, with "
        "replicas "
        "that update alone, parallel.rows = \"request\"");
  }
  world_.agree(*world_.links.end_hub, rank_, "parameters and data", layout_text(),
               fmt::format("{} ({})", parts_->device->kernel_choice(), parts_->device->features()));
  start_weights();
  updater_ = std::make_unique<Updater>(parts_->optimizer, weights_->live(), *parts_->device, places_.get());
  updater_->bind({groups_->coordinates(), groups_->all()}, settings.run.steps);
  if (!row_tables().empty()) {
    table_counts_ = std::make_unique<RunTableCounts>(weights_->live(), *updater_);
    with_.host.set_table_counts(table_counts_.get());
  }
  if (initial_ != nullptr) {
    initial_->load_optimizer(weights_->live(), *updater_, parts_->optimizer, *parts_->device, counters_);
    if (!initial_->is_fork()) initial_->close();
  }
  if (requests_ != nullptr)
    requests_->open(*weights_, *updater_, *parts_, rows_->sharded(), shares_weights());
}

void Trainer::make_workers(std::vector<std::unique_ptr<Executor>> executors) {
  const config::CoreSettings& settings = world_.settings;
  // State that only one rank holds must be of the same slot everywhere; replicas that lag copy the others.
  const bool votes =
      parts_->recovery->needs_commit() || (world_.place.survives && Survivor::loses_rows(weights_->live()));
  const WorkerShared shared{settings,
                            *world_.clock,
                            *world_.links.control,
                            with_,
                            *parts_,
                            *observers_,
                            *weights_,
                            *updater_,
                            *rows_,
                            {groups_->coordinates(), groups_->all()},
                            static_cast<int>(settings.parallel.workers),
                            votes,
                            parts_->recovery->answers_non_finite()};
  for (std::size_t w = 0; w < executors.size(); ++w) {
    RowClient* requests = requests_ != nullptr ? &requests_->client(w) : nullptr;
    workers_.push_back(
        std::make_unique<Worker>(shared, std::move(executors[w]), static_cast<int>(w), requests));
  }
  make_evaluators();
  sync_end_.parts = parts_.get();
  std::vector<ParameterSet*> optimizer_state;
  for (const auto& set : updater_->state()) optimizer_state.push_back(set.get());
  weights_->set_update(
      [this] {
        const double base = parts_->optimizer->base_lr();
        return parts_->schedule.within(
            [&](const Schedule& schedule) { return peak_rate(schedule, world_.settings.run.steps, base); });
      },
      std::move(optimizer_state));
  parts_->sync->start(*weights_);
  workers_[0]->require_equal_plans();
}

void Trainer::make_evaluators() {
  const config::CoreSettings& settings = world_.settings;
  std::vector<EvaluatedData> all{
      {std::string(split_name(Split::kVal)), &parts_->dataset, settings.run.eval_every}};
  for (std::size_t i = 0; i < settings.evaluate.size(); ++i) {
    const config::EvaluateSettings& entry = settings.evaluate[i];
    all.push_back({fmt::format("{}.{}", split_name(Split::kVal), entry.name), &parts_->evaluated[i],
                   entry.every.value_or(settings.run.eval_every)});
  }
  for (EvaluatedData& data : all)
    evaluators_.push_back(std::make_unique<Evaluator>(std::move(data), *parts_->device, *weights_,
                                                      workers_[0]->executor(), settings.run.eval_batches,
                                                      rows_->sharded()));
}

void Trainer::make_state() {
  RankState::Members members;
  members.rank = rank_;
  members.replica = replica_;
  members.coordinates = groups_->coordinates();
  members.shared = shares_weights();
  members.weights = weights_.get();
  members.updater = updater_.get();
  for (const auto& worker : workers_) members.executors.push_back(&worker->executor());
  members.parts = parts_.get();
  members.counters = &counters_;
  members.drawn = on_policy_;
  state_ = std::make_unique<RankState>(members);
  if (initial_ != nullptr && initial_->is_fork()) check_fork();
}

bool Trainer::shares_weights() const {
  return parts_->sync->gradient_group() == GradientGroup::kAllReplicas;
}

/// Each worker has activations and gradients of its own; the first one also states what all have in common.
void Trainer::require_room_for_workers(const Executor& first, const Executor& second) const {
  const std::int64_t workers = world_.settings.parallel.workers;
  const std::int64_t needed = graph::saturating_sum(
      first.allocated_bytes(), graph::saturating_product(second.allocated_bytes(), workers - 1));
  const graph::MemoryBudget budget(*parts_->device);
  if (budget.allows(needed)) return;
  fail_config(fmt::format("parallel.workers = {}: their activations take {}, {}; lower it", workers,
                          graph::memory_text(needed), budget.text()));
}

ExecutorSpec Trainer::executor_spec(Host& host) const {
  ExecutorSpec spec;
  spec.layers = layers_.get();
  spec.device = parts_->device.get();
  spec.host = &host;
  spec.precision = parts_->precision.get();
  spec.mesh = &groups_->mesh();
  spec.replicas = groups_->replicas();
  spec.replica = replica_;
  spec.seed = world_.settings.run.seed;
  spec.seed_rounding = world_.settings.run.seed_rounding;
  spec.steps = world_.settings.run.steps;
  return spec;
}

std::unique_ptr<Executor> Trainer::make_executor(const GraphSpec& graph, std::size_t worker) {
  ExecutorSpec spec = executor_spec(requests_ != nullptr ? requests_->host(worker) : with_.host);
  spec.batch = parts_->dataset->batch();
  if (world_.settings.init) spec.frozen = world_.settings.init->frozen;
  if (on_policy_ != nullptr) {
    const std::string_view scored = parts_->dataset.guarded(*on_policy_)->scored();
    if (!scored.empty()) spec.keep.emplace_back(scored);
  }
  // A separate statement, so that an error of building the graph is not attributed to the data set.
  const DataInfo& data = parts_->dataset->info();
  return std::make_unique<Executor>(spec, graph, data);
}

/// Returns what must be equal on all processes before the first byte of a tensor is sent.
std::string Trainer::layout_text() const {
  std::string text;
  for (const DataSource& source : data_sources()) text += fmt::format("data sha256 {}\n", source.sha256);
  for (const ParameterInfo& info : weights_->live().parameters()) {
    text += fmt::format("parameter {} {} {}", info.spec.name, dtype_name(info.spec.dtype),
                        info.spec.shape.text());
    for (const DimSharding& sharding : info.spec.sharding)
      text += fmt::format(" sharded over {} at {}", fmt::join(sharding.axes, "x"),
                          fmt::join(sharding.offsets, ","));
    text += "\n";
  }
  return text;
}

// Equal seeds make equal weights, but a strategy may rely on equality, so it is made true by a broadcast.
void Trainer::start_weights() {
  ParameterSet& live = weights_->live();
  initialise(live, world_.settings.run.seed_init, *parts_->device);
  if (world_.settings.init && !world_.goes_on_from_checkpoint()) {
    initial_ =
        std::make_unique<InitialState>(*world_.settings.init, world_.registry, with_.host, *world_.files);
    initial_->load_weights(live, *parts_->device);
  }
  Communicator* group = weights_->group(Purpose::kState);
  if (group == nullptr) return;
  for (int arena = 0; arena < live.arenas(); ++arena) {
    if (!live.arena(arena).empty()) group->broadcast(live.arena(arena), 0);
  }
}

bool Trainer::speaks() const {
  return parts_->model.offered<LanguageModel>() != nullptr;
}

std::unique_ptr<generate::StepwiseGenerator> Trainer::make_generator(std::function<void(Executor&)> made) {
  const DataInfo data = generate::StepwiseGenerator::prompt_data(parts_->dataset->info());
  LanguageModel& language = *parts_->model.offered<LanguageModel>();
  LanguageGraph graph = parts_->model.guarded(language)->language_graph(data);
  graph.graph = edit_graph([&] { return std::move(graph.graph); }, data, world_.checked.model_edits);
  generate::GeneratorSettings settings;
  settings.made = std::move(made);
  ExecutorSpec spec = executor_spec(with_.host);
  if (const config::CheckedComponent* const named = config::find_component(parts_->checked, "precision")) {
    generating_ = std::make_unique<config::CheckedComponent>(named->copy());
    ResolvedOptions& options = *generating_->options;
    world_.registry.create_inner(options, with_.host);
    generating_precision_ = std::make_unique<Part<Precision>>(
        &options, world_.registry.create<Precision>(named->type, options, with_.host), nullptr, with_.host);
    spec.precision = generating_precision_->get();
  }
  return std::make_unique<generate::StepwiseGenerator>(spec, std::move(graph), data, std::move(settings));
}

namespace {

/// State that other sites take over where they have the same names and shapes.
class SharedState final : public StateSource {
 public:
  SharedState(const StateCollector& kept, Device& device) : kept_(kept), device_(device) {}
  const std::string* scalar(const std::string& name) override {
    const auto found = std::ranges::find(kept_.scalars, name, [](const auto& entry) { return entry.first; });
    return found == kept_.scalars.end() ? nullptr : &found->second;
  }
  void tensor(const std::string& name, TensorView out) override {
    const auto found = std::ranges::find(kept_.tensors, name, [](const auto& entry) { return entry.first; });
    if (found == kept_.tensors.end()) return;
    const TensorView& from = found->second;
    if (from.shape == out.shape && from.dtype == out.dtype) device_.copy(from, out);
  }

 private:
  const StateCollector& kept_;
  Device& device_;
};

}  // namespace

void Trainer::share_sites(Executor& with) const {
  const auto share = [&](const auto& visit_from, const auto& visit_to) {
    StateCollector kept;
    visit_from(kept);
    SharedState source(kept, *parts_->device);
    StateRestorer restorer(source, Missing::kStays);
    visit_to(restorer);
  };
  if (generating_precision_ != nullptr)
    share([&](StateVisitor& visitor) { parts_->precision->state(visitor); },
          [&](StateVisitor& visitor) { (*generating_precision_)->state(visitor); });
  share([&](StateVisitor& visitor) { workers_.front()->executor().state(visitor); },
        [&](StateVisitor& visitor) { with.state(visitor); });
}

std::vector<DataSource> Trainer::data_sources() const {
  std::vector<DataSource> sources = parts_->dataset->info().sources;
  for (const Part<Dataset>& dataset : parts_->evaluated) {
    for (const DataSource& source : dataset->info().sources) {
      const auto same = [&](const DataSource& known) {
        return known.path == source.path && known.sha256 == source.sha256;
      };
      if (std::ranges::none_of(sources, same)) sources.push_back(source);
    }
  }
  return sources;
}

RunShape Trainer::shape() const {
  return {world_.settings.run.steps, parts_->dataset->batch(), weights_->replicas()};
}

std::int64_t Trainer::slot_samples() const {
  return world_.settings.run.accumulate * parts_->dataset->batch() * weights_->replicas();
}

void Trainer::check(const CheckpointReader& reader) const {
  state_->check(reader, world_.settings.parallel.ranks_per_replica() == 1);
  // A separate statement, so that an error of the comparison is not attributed to the data set.
  const std::vector<DataSource> sources = parts_->dataset->info().sources;
  const std::string& folder = world_.record.store->folder();
  check_data(reader, sources, folder);
  const RunShape now = shape();
  check_position(reader, now, folder);
  const double base_lr = parts_->optimizer->base_lr();
  const auto rate = [&](std::int64_t slot, std::int64_t steps) {
    return parts_->schedule->rate({slot, steps, base_lr});
  };
  const std::string replanned = check_rates(reader, now, rate, folder, world_.request.extend);
  if (!replanned.empty()) world_.record.notes.push_back(replanned);
}

// The rates of slots to come may be others: that is what most forks are for.
void Trainer::check_fork() const {
  const CheckpointReader& reader = initial_->checkpoint();
  state_->check(reader, world_.settings.parallel.ranks_per_replica() == 1, Continued::kFork);
  const std::vector<DataSource> sources = parts_->dataset->info().sources;
  check_data(reader, sources, initial_->loaded().from);
  check_position(reader, shape(), initial_->loaded().from);
  if (reader.step() > world_.settings.run.steps)
    fail_config(
        fmt::format("[init] what = \"everything\": the checkpoint is of slot {}, and run.steps is {}; "
                    "raise run.steps, or name an earlier step",
                    reader.step(), world_.settings.run.steps));
}

std::vector<ParameterInfo> Trainer::row_tables() const {
  std::vector<ParameterInfo> tables;
  for (const ParameterInfo& info : weights_->live().parameters()) {
    if (info.spec.role == Role::kRowTable) tables.push_back(info);
  }
  return tables;
}

void Trainer::add_table_facts(std::vector<std::string>& lines) const {
  const std::vector<ParameterInfo> tables = row_tables();
  if (tables.empty()) return;
  std::int64_t rows = 0;
  for (const ParameterInfo& info : tables) rows += info.spec.shape[0];
  lines.push_back(fmt::format("row tables: {} with {} rows; {:.1f} MiB with their state on this rank",
                              tables.size(), rows, megabytes(updater_->table_bytes())));
  for (std::string& fact : planner_->facts()) lines.push_back("  " + std::move(fact));
  for (int replica = 0; rows_->sharded() && replica < weights_->replicas(); ++replica) {
    std::int64_t held = 0, bytes = 0, some = 0;
    for (const ParameterInfo& info : tables) {
      MeshPlace place = groups_->mesh().place();
      place.replica = replica;
      const Shape local = local_part(info.spec, place).extents;
      held += local[0];
      bytes += dtype_bytes(info.spec.dtype, local.elements());
      some += local[0] > 0 ? 1 : 0;
    }
    lines.push_back(fmt::format("  replica {}: {} rows of {} tables, {:.1f} MiB of weights", replica, held,
                                some, megabytes(bytes)));
  }
}

void Trainer::add_evaluation_facts(std::vector<std::string>& lines) const {
  for (const auto& evaluator : evaluators_) {
    const EvaluatedData& data = evaluator->data();
    if (!data.named()) continue;
    lines.push_back(fmt::format("evaluation {}: {} samples of {}, {}", data.set,
                                (*data.dataset)->info().val_samples, data.dataset->id(),
                                data.every == 0 ? "at the end" : fmt::format("every {} slots", data.every)));
  }
}

std::int64_t Trainer::planned_bytes() const {
  std::int64_t sum =
      arena_bytes(weights_->live()) + arena_bytes(weights_->gradients()) + updater_->table_bytes();
  for (const auto& set : updater_->state()) sum += arena_bytes(*set);
  for (const auto& set : weights_->created_sets()) sum += arena_bytes(*set);
  for (const auto& worker : workers_) sum += worker->executor().allocated_bytes();
  if (parts_->recovery->keep() > 0) {
    for (const StateEntry& entry : state_->entries()) {
      if (!entry.written) continue;
      // The copy that is written, and while it is made the rows of all tables beside.
      sum += entry.table == nullptr ? entry.bytes() : 2 * entry.bytes();
    }
  }
  return sum;
}

std::vector<std::string> Trainer::facts() const {
  std::vector<std::string> lines;
  std::int64_t trained = 0, frozen = 0, buffers = 0;
  for (const ParameterInfo& info : weights_->live().parameters()) {
    const std::int64_t elements = info.spec.shape.elements();
    (info.spec.role == Role::kBuffer ? buffers : info.spec.trainable ? trained : frozen) += elements;
  }
  lines.push_back(fmt::format("parameters: {} trained, {} frozen, {} in buffers", trained, frozen, buffers));
  std::int64_t state = 0;
  for (const auto& set : updater_->state()) state += arena_bytes(*set);
  lines.push_back(
      fmt::format("memory of a rank: weights {:.1f} MiB, gradients {:.1f} MiB, optimizer state {:.1f} MiB",
                  megabytes(arena_bytes(weights_->live())), megabytes(arena_bytes(weights_->gradients())),
                  megabytes(state)));
  add_table_facts(lines);
  for (const PlanLine& line : workers_[0]->executor().memory_plan()) {
    lines.push_back(
        fmt::format("  {}: {:.1f} MiB", line.what, megabytes(static_cast<std::int64_t>(line.bytes))));
  }
  add_evaluation_facts(lines);
  lines.push_back(fmt::format("gradient buckets: {}", weights_->buckets().size()));
  const std::vector<std::string> kept = workers_[0]->executor().unquantized_sites();
  const std::size_t sites = workers_[0]->executor().linear_sites();
  // Names where a choice was made; all of them say nothing.
  lines.push_back(fmt::format("linear sites in the activations' format: {} of {}{}{}", kept.size(), sites,
                              kept.empty() || kept.size() == sites ? "" : ", ",
                              kept.size() == sites ? "" : fmt::format("{}", fmt::join(kept, ", "))));
  lines.push_back(fmt::format("kernels: {}", parts_->device->kernel_choice()));
  for (const std::string& warning : warnings()) lines.push_back("warning: " + warning);
  return lines;
}

std::vector<std::string> Trainer::warnings() const {
  std::vector<std::string> all = world_.checked.warnings;
  const config::RunSettings& run = world_.settings.run;
  std::int64_t slots = run.steps;
  if (run.max_samples) slots = std::min(slots, (*run.max_samples - 1) / slot_samples() + 1);
  const std::int64_t first = weights_->replicas() > 1 ? parts_->sync->first_round() : 0;
  if (first > slots) {
    all.push_back(
        fmt::format("sync.{} acts for the first time after {} slots, and the run ends after {}: it compares "
                    "nothing; raise "
                    "run.steps, or lower the strategy's interval or warm-up",
                    parts_->sync.id(), first, slots));
  }
  if (std::string idle = Prefetch::idle_reason(world_.settings, *this); !idle.empty())
    all.push_back(std::move(idle));
  const double base = parts_->optimizer->base_lr();
  const auto rate = [&](std::int64_t slot) { return parts_->schedule->rate({slot, run.steps, base}); };
  if (slots > 1 && rate(slots - 1) > rate(slots - 2) && rate(slots - 1) < base) {
    all.push_back(fmt::format(
        "schedule.{} is still in its warm-up when the run ends after {} slots: the rate reaches {:.3g} "
        "of {:.3g}; shorten the warm-up, or raise run.steps",
        parts_->schedule.id(), slots, rate(slots - 1), base));
  }
  for (std::string& warning : places_->warnings(row_tables())) all.push_back(std::move(warning));
  return all;
}

}  // namespace tenon::train
