// Running a built graph. Forward walks the nodes, backward walks them in reverse and reports each parameter
// whose last user has added its gradient.
#include "base/at.hpp"
#include "graph/contexts.hpp"
#include "graph/graph_build.hpp"
#include "graph/memory_budget.hpp"
#include "graph/parameter_set.hpp"
#include "graph/pass_place.hpp"

#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>

#include <fmt/format.h>

#include <algorithm>

TENON_ABI_BEGIN

namespace {

/// Facts about a node for its spans.
struct NodeCost {
  std::string backward;  ///< name of its backward span
  double bytes = 0;      ///< inputs, outputs and parameters
};

std::vector<NodeCost> node_costs(const graph::Build& build) {
  std::vector<NodeCost> costs;
  for (const graph::Node& node : build.nodes) {
    std::int64_t bytes = 0;
    const auto value = [&](int index) { return base::at(build.values, index).data.bytes(); };
    for (const graph::NodeInput& input : node.inputs) bytes += value(input.value);
    for (const int output : node.outputs) bytes += value(output);
    for (const int p : node.parameters) {
      const ParameterInfo& info = base::at(build.parameters, p);
      if (info.spec.role != Role::kRowTable) bytes += dtype_bytes(info.spec.dtype, info.local.elements());
    }
    costs.push_back({node.spec.name + " backward", static_cast<double>(bytes)});
  }
  return costs;
}

/// What the nodes of a stepwise graph keep of sequences, and how many positions of each sequence that is.
class KeptSequences final : public SequenceState {
 public:
  KeptSequences(Device& device, std::int64_t positions, std::int64_t sequences)
      : device_(device), positions_(positions), lengths_(sequences, 0), taken_(sequences, 0) {}
  ~KeptSequences() override {
    for (const Kept& kept : kept_) device_.release(kept.memory.data, kept.memory.bytes());
  }
  KeptSequences(const KeptSequences&) = delete;
  KeptSequences& operator=(const KeptSequences&) = delete;

  std::int64_t sequences() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t bytes() const override {
    std::int64_t sum = 0;
    for (const Kept& kept : kept_) sum += kept.memory.bytes();
    return sum;
  }

  void add(const graph::Node& node) {
    TensorView memory{nullptr, {sequences(), node.sequence_bytes}, DType::kU8, device_.space()};
    memory.data = graph::allocate_for(device_, static_cast<std::size_t>(memory.bytes()),
                                      fmt::format("what layer '{}' keeps of {} sequences of {} positions",
                                                  node.spec.name, sequences(), positions_));
    kept_.push_back({node.spec.name, memory});
  }
  TensorView memory(std::size_t number) const { return kept_[number].memory; }

  /// Throws Error(kRun) unless an executor of `build` may run a pass on it.
  void require(const graph::Build& build, const Device& device, std::int64_t positions) const {
    std::size_t number = 0;
    bool same = &device == &device_ && positions == positions_;
    for (const graph::Node& node : build.nodes) {
      if (node.sequence_bytes == 0) continue;
      same = same && number < kept_.size() && kept_[number].node == node.spec.name &&
             kept_[number].memory.shape[1] == node.sequence_bytes;
      ++number;
    }
    if (same && number == kept_.size()) return;
    fail_run(
        fmt::format("{} sequences of at most {} positions were kept by {} layers of another graph, precision "
                    "or device; make them by an executor of the graph that goes on with them",
                    sequences(), positions_, kept_.size()));
  }

  /// The rows' sequences hold nothing until finish(). Throws Error(kRun) for positions that do not fit.
  /// Returns what layers are told, valid until the next call, with 0 for numbers that mean nothing.
  Steps begin(const StepRun& run, std::int64_t batch, std::int64_t time) {
    for (const std::span<const std::int64_t>& numbers : {run.first, run.count, run.kept}) {
      if (static_cast<std::int64_t>(numbers.size()) == batch) continue;
      fail_run(
          fmt::format("a stepwise pass of {} rows was given numbers of {}; expected one of first, count "
                      "and kept per row",
                      batch, numbers.size()));
    }
    std::fill(taken_.begin(), taken_.end(), static_cast<unsigned char>(0));
    for (std::size_t row = 0; row < run.count.size(); ++row) check(row, run, time);
    first_.assign(run.first.begin(), run.first.end());
    rows_.assign(run.kept.begin(), run.kept.end());
    for (std::size_t row = 0; row < run.count.size(); ++row) {
      if (run.count[row] > 0) {
        base::at(lengths_, run.kept[row]) = 0;
      } else {
        first_[row] = rows_[row] = 0;
      }
    }
    return {first_, run.count, rows_, {}, {}};
  }
  void finish(const StepRun& run) {
    for (std::size_t row = 0; row < run.count.size(); ++row) {
      if (run.count[row] > 0) base::at(lengths_, run.kept[row]) = run.first[row] + run.count[row];
    }
  }

 private:
  struct Kept {
    std::string node;
    TensorView memory;  ///< u8 [sequences, bytes]
  };

  void check(std::size_t row, const StepRun& run, std::int64_t time) {
    const std::int64_t first = run.first[row], count = run.count[row], kept = run.kept[row];
    const auto refuse = [&](const std::string& what) {
      fail_run(fmt::format("row {} of a stepwise pass {}", row, what));
    };
    if (count < 0 || count > time)
      refuse(
          fmt::format("has {} places that count; expected 0 ... {}, the positions of a pass", count, time));
    if (count == 0) return;
    if (kept < 0 || kept >= sequences())
      refuse(fmt::format("goes on with sequence {}; expected 0 ... {}", kept, sequences() - 1));
    if (base::at(taken_, kept) != 0)
      refuse(fmt::format("goes on with sequence {}, as an earlier row does; expected one row each", kept));
    base::at(taken_, kept) = 1;
    if (const std::int64_t held = base::at(lengths_, kept); first != 0 && first != held)
      refuse(fmt::format(
          "begins at position {} of sequence {}, which holds {}; expected 0, to begin anew, or {}", first,
          kept, held, held));
    if (count > positions_ - first)
      refuse(
          fmt::format("adds {} positions from {} on; a sequence has at most {}", count, first, positions_));
  }

  Device& device_;
  std::int64_t positions_;
  std::vector<std::int64_t> lengths_;       ///< positions held, by sequence
  std::vector<unsigned char> taken_;        ///< by a row of the pass, by sequence
  std::vector<std::int64_t> first_, rows_;  ///< of the pass
  std::vector<Kept> kept_;                  ///< of the nodes that keep something, in their order
};

}  // namespace

struct Executor::Impl {
  Impl(const ExecutorSpec& executor_spec, const GraphSpec& graph, const DataInfo& data)
      : spec(executor_spec),
        build(graph::build_graph(spec, graph, data)),
        forward_context(pass),
        backward_context(pass),
        written(build->parameters.size(), 0),
        waiting(build->parameters.size(), 0) {
    pass.build = build.get();
    pass.seed = spec.seed;
    pass.rows = &rows;
    pass.written = &written;
    for (const ParameterInfo& info : build->parameters) has_buffers |= info.spec.role == Role::kBuffer;
    if (has_buffers && spec.training) {
      staged = make_parameter_set("staged", build->parameters, *spec.device, SetContents::kBuffers);
      pass.staged = staged.get();
    }
    for (int i = 0; i < build->fields; ++i) inputs.push_back(base::at(build->values, i).data);
    if (spec.training) find_lookups(data);
    memory_watch = static_cast<MemoryWatch*>(spec.device->query(MemoryWatch::kId));
    spans = static_cast<SpanSink*>(spec.host->query(SpanSink::kId));
    if (spans != nullptr) costs = node_costs(*build);
    for (graph::Node& node : build->nodes) {
      if (node.loss != nullptr) losses.push_back({std::string(node.loss->metric()), 0, 0});
      names.push_back(fmt::format("layer.{}, node '{}'", node.spec.type, node.spec.name));
    }
  }
  ~Impl() { graph::release(*build, *spec.device); }

  /// Nodes that tell which rows they read, where that follows from the data as it was read.
  void find_lookups(const DataInfo& data) {
    for (graph::Node& node : build->nodes) {
      auto* const layer = static_cast<RowLookups*>(node.layer->query(RowLookups::kId));
      if (layer == nullptr || node.skipped) continue;
      Lookups found{layer, &node, {}};
      bool known = true;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const int value = node.inputs[i].value;
        const bool needed = layer->looks_up_by(static_cast<int>(i));
        if (needed) {
          known = known && value < build->fields &&
                  base::at(data.fields, value).dtype == base::at(build->values, value).spec.dtype;
        }
        found.fields.push_back(needed ? value : -1);
      }
      if (known) lookups.push_back(std::move(found));
    }
  }

  graph::PassKind forward_kind() const {
    return pass.run.training ? graph::PassKind::kForward : graph::PassKind::kEvaluation;
  }

  void require_stepwise(const char* call) const {
    if (spec.positions <= 0)
      fail_run(fmt::format("{} was asked of a graph that was not built to run stepwise", call));
  }
  void require_whole(const char* call) const {
    if (spec.positions > 0)
      fail_run(fmt::format("{} was asked of a graph that was built to run stepwise; call step", call));
  }

  /// Writes the positions of a pass to the device.
  TensorView positions_of(const Steps& steps) {
    const TensorView positions = build->positions;
    auto* to = position_stage.room(positions).as<std::int32_t>();
    for (std::size_t row = 0; row < steps.count.size(); ++row) {
      for (std::int64_t place = 0; place < build->time; ++place)
        *to++ = static_cast<std::int32_t>(steps.first[row] + (place < steps.count[row] ? place : 0));
    }
    position_stage.write(*spec.device, positions);
    return positions;
  }

  /// `weights` are those of the next pass.
  void use(ParameterSet& weights) {
    if (!pass.bound.empty() && weights.parameters().size() != bound_size)
      fail_run(fmt::format("the graph is bound to sets of {} parameters, and '{}' has {}; bind it first",
                           bound_size, weights.name(), weights.parameters().size()));
    pass.weights = &weights;
  }

  /// Waits for the forward where the device computes asynchronously.
  void read_losses() {
    std::size_t next = 0;
    for (std::size_t i = 0; i < build->nodes.size(); ++i) {
      graph::Node& node = build->nodes[i];
      if (node.loss == nullptr) continue;
      if (node.skipped) {
        ++next;
        continue;
      }
      const graph::PassScope scope(place, names[i], forward_kind());
      double pair[2] = {0, 0};
      TensorView host;
      host.data = pair;
      host.dtype = DType::kF64;
      host.shape = Shape{2};
      spec.device->copy(base::at(build->values, node.outputs.at(0)).data, host);
      losses[next].sum = pair[0];
      losses[next].count = pair[1];
      ++next;
    }
  }

  /// Tells a loss that is part of another its seed: what the other's backward wrote for the sum. Waits for it
  /// where the device computes asynchronously.
  void seed_part(graph::Node& node) {
    const TensorView gradient = base::at(build->values, node.outputs.at(0)).gradient;
    double pair[2] = {0, 0};
    if (!gradient.empty()) {
      spec.device->copy(gradient, {pair, Shape{2}, DType::kF64, MemorySpace::kHost});
      spec.device->synchronize();
    }
    node.loss->set_seed(pair[0]);
  }

  /// Runs one pass of a node, as a span if an observer wants spans. Errors get their names from the layer's
  /// owner.
  template <typename Call>
  void timed(std::size_t node, bool backward, Call&& call) {
    const graph::PassScope scope(place, names[node], backward ? graph::PassKind::kBackward : forward_kind());
    if (spans == nullptr || !pass.run.training || !spans->wanted()) {
      call();
      return;
    }
    const NodeCost& cost = costs[node];
    const double flops = pass.flops;
    Span span{"layer", backward ? cost.backward : build->nodes[node].spec.name, spans->now()};
    call();
    span.end_s = spans->now();
    span.flops = pass.flops - flops;
    span.bytes = backward ? 2 * cost.bytes : cost.bytes;  // the gradients of what forward touched, too
    spans->add(span);
  }

  /// Tells a device that asked which buffers begin in the pass of a node: forward, or backward.
  void begin_buffers(std::size_t node, bool backward) {
    if (memory_watch == nullptr) return;
    const auto nodes = static_cast<int>(build->nodes.size());
    const int time = backward ? 2 * nodes - 1 - static_cast<int>(node) : static_cast<int>(node);
    for (const graph::Lifetime& buffer : build->plan) {
      if (buffer.first != time || buffer.bytes == 0) continue;
      TensorView memory = build->block;
      memory.data = static_cast<std::byte*>(memory.data) + buffer.offset;
      memory.shape = Shape{static_cast<std::int64_t>(buffer.bytes)};
      memory_watch->begins(memory, buffer.what);
    }
  }

  void show_outputs(const graph::Node& node) const {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const graph::GraphValue& value = base::at(build->values, node.outputs[i]);
      if (value.stored_as >= 0) continue;  // it exists only after the folded map
      probe(node.spec.name, node.spec.type, static_cast<int>(i), value.data);
    }
  }

  void copy_buffers(ParameterSet& from, ParameterSet& to) {
    for (const ParameterInfo& info : build->parameters) {
      if (info.spec.role == Role::kBuffer) spec.device->copy(from.tensor(info.index), to.tensor(info.index));
    }
  }

  void finish_node(graph::Node& node, const ParameterReady& ready) {
    for (std::size_t i = 0; i < node.parameters.size(); ++i) {
      const int p = node.parameters[i];
      const auto begin = node.parameters.begin();
      if (std::find(begin, begin + static_cast<std::ptrdiff_t>(i), p) !=
          begin + static_cast<std::ptrdiff_t>(i))
        continue;
      if (--base::at(waiting, p) > 0) continue;
      const TensorView gradient = pass.gradients->tensor(p);
      if (gradient.empty()) continue;
      if (base::at(written, p) == 0) {
        spec.device->family<Elementwise>().fill(gradient, 0);
        base::at(written, p) = 1;
      }
      if (ready) ready(p);
    }
  }

  /// A node whose rows are known before its forward.
  struct Lookups {
    RowLookups* layer = nullptr;
    const graph::Node* node = nullptr;
    std::vector<int> fields;  ///< per input the data field, -1 = not needed
  };

  ExecutorSpec spec;
  std::unique_ptr<graph::Build> build;
  graph::RowGradients rows;
  graph::Pass pass;
  graph::NodeForward forward_context;
  graph::NodeBackward backward_context;
  std::unique_ptr<ParameterSet> staged;
  bool has_buffers = false;
  std::vector<TensorView> inputs;
  std::vector<LossValue> losses;
  OutputProbe probe;
  MemoryWatch* memory_watch = nullptr;
  SpanSink* spans = nullptr;
  std::vector<Lookups> lookups;
  std::vector<TensorView> lookup_inputs;
  std::vector<NodeCost> costs;     ///< empty where no spans are recorded
  std::vector<std::string> names;  ///< of nodes, for the watch of kernels that do not return
  graph::KnownPlace place{spec.host->query(graph::PassPlaces::kId)};
  std::vector<unsigned char> written;
  std::vector<int> waiting;
  HostStage position_stage;
  std::size_t bound_size = 0;  ///< parameters of the sets that the graph is bound to
};

Executor::Executor(const ExecutorSpec& spec, const GraphSpec& graph, const DataInfo& data)
    : impl_(std::make_unique<Impl>(spec, graph, data)) {}
Executor::~Executor() = default;

const std::vector<ParameterInfo>& Executor::parameters() const {
  return impl_->build->parameters;
}
std::string_view Executor::layer_of(int parameter) const {
  for (const graph::Node& node : impl_->build->nodes) {
    if (std::find(node.parameters.begin(), node.parameters.end(), parameter) != node.parameters.end())
      return node.spec.name;
  }
  return {};
}
std::span<const TensorView> Executor::inputs() {
  return impl_->inputs;
}

void Executor::bind(const ParameterSet& set) {
  if (impl_->spec.training)
    fail_run("bind was asked of a graph that was built for training, whose order is that of its gradients");
  impl_->pass.bound = graph::bound_indices(impl_->build->parameters, set);
  impl_->bound_size = set.parameters().size();
}

void Executor::forward(ParameterSet& weights, const RunSpec& run) {
  impl_->require_whole("forward");
  impl_->use(weights);
  impl_->pass.run = run;
  impl_->pass.run.training &= impl_->spec.training;  // nothing is staged or kept in a graph for evaluation
  if (impl_->staged != nullptr && run.training && run.micro == 0)
    impl_->copy_buffers(weights, *impl_->staged);
  std::vector<graph::Node>& nodes = impl_->build->nodes;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].skipped) continue;
    impl_->pass.node = &nodes[i];
    impl_->begin_buffers(i, false);
    if (nodes[i].folded_into < 0)
      impl_->timed(i, false, [&] { nodes[i].layer->forward(impl_->forward_context); });
    if (impl_->probe) impl_->show_outputs(nodes[i]);
  }
  impl_->read_losses();
}

std::unique_ptr<SequenceState> Executor::make_sequences(std::int64_t sequences) {
  impl_->require_stepwise("make_sequences");
  if (sequences < 1)
    fail_run(fmt::format("memory of {} sequences was asked for; expected 1 or more", sequences));
  std::int64_t bytes = 0;
  for (const graph::Node& node : impl_->build->nodes)
    bytes = graph::saturating_sum(bytes, graph::saturating_product(sequences, node.sequence_bytes));
  if (const graph::MemoryBudget budget(*impl_->spec.device); !budget.allows(bytes)) {
    fail_config(fmt::format("{} sequences of {} positions take {}, {}; keep fewer sequences at a time",
                            sequences, impl_->spec.positions, graph::memory_text(bytes), budget.text()));
  }
  auto kept = std::make_unique<KeptSequences>(*impl_->spec.device, impl_->spec.positions, sequences);
  for (const graph::Node& node : impl_->build->nodes) {
    if (node.sequence_bytes > 0) kept->add(node);
  }
  return kept;
}

void Executor::step(ParameterSet& weights, SequenceState& sequences, const StepRun& run) {
  Impl& impl = *impl_;
  impl.require_stepwise("step");
  auto* const kept = dynamic_cast<KeptSequences*>(&sequences);
  if (kept == nullptr) fail_run("a stepwise pass was given sequences that no executor made");
  kept->require(*impl.build, *impl.spec.device, impl.spec.positions);
  impl.use(weights);
  Steps steps = kept->begin(run, impl.build->batch, impl.build->time);
  steps.positions = impl.positions_of(steps);
  impl.pass.run = {.slot = run.slot, .training = false};
  std::size_t number = 0;
  std::vector<graph::Node>& nodes = impl.build->nodes;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    graph::Node& node = nodes[i];
    if (node.skipped) continue;
    impl.pass.node = &node;
    impl.begin_buffers(i, false);
    steps.state = node.sequence_bytes > 0 ? kept->memory(number++) : TensorView{};
    if (node.folded_into < 0) {
      impl.timed(i, false, [&] {
        if (node.stepwise != nullptr) return node.stepwise->step(impl.forward_context, steps);
        node.layer->forward(impl.forward_context);
      });
    }
    if (impl.probe) impl.show_outputs(node);
  }
  kept->finish(run);
}

void Executor::probe_outputs(OutputProbe probe) {
  impl_->probe = std::move(probe);
}

void Executor::probe_operands(NumericsSink* sink) {
  impl_->pass.numerics = sink;
}

void Executor::publish(ParameterSet& weights) {
  if (impl_->staged == nullptr) return;
  impl_->copy_buffers(*impl_->staged, weights);
  weights.touch(-1);
}

std::span<const LossValue> Executor::losses() const {
  return impl_->losses;
}

void Executor::begin_metrics() {
  for (graph::Node& node : impl_->build->nodes) {
    if (node.metric != nullptr) node.metric->begin();
  }
}

void Executor::finish_metrics(Communicator* replicas, MetricReport& report) {
  for (graph::Node& node : impl_->build->nodes) {
    if (node.metric == nullptr) continue;
    impl_->pass.node = &node;
    node.metric->finish(replicas, report);
  }
}

void Executor::backward(ParameterSet& weights, ParameterSet& gradients, double seed, bool first,
                        const ParameterReady& ready) {
  Impl& impl = *impl_;
  graph::Build& build = *impl.build;
  if (build.loss_node < 0) fail_run("backward was asked of a graph that was built without training");
  impl.pass.weights = &weights;
  impl.pass.gradients = &gradients;
  if (first) {
    std::fill(impl.written.begin(), impl.written.end(), static_cast<unsigned char>(0));
    impl.rows.clear();
  }
  for (const ParameterInfo& info : build.parameters) base::at(impl.waiting, info.index) = info.users;
  base::at(build.nodes, build.loss_node).loss->set_seed(seed);
  for (std::size_t i = build.nodes.size(); i-- > 0;) {
    graph::Node& node = build.nodes[i];
    if (!node.runs_backward) continue;
    impl.pass.node = &node;
    impl.begin_buffers(i, true);
    if (node.loss != nullptr && static_cast<int>(i) != build.loss_node) impl.seed_part(node);
    impl.timed(i, true, [&] { node.layer->backward(impl.backward_context); });
    impl.finish_node(node, ready);
  }
  // Trainable parameters that no loss reaches: their gradients are zero since allocation.
  if (!ready) return;
  for (const ParameterInfo& info : build.parameters) {
    if (info.users == 0 && !gradients.tensor(info.index).empty()) ready(info.index);
  }
}

void Executor::scale_gradients(ParameterSet& gradients, double factor) {
  Elementwise& maps = impl_->spec.device->family<Elementwise>();
  for (int arena = 0; arena < gradients.arenas(); ++arena) {
    const TensorView view = graph::as_reals(gradients.arena(arena));
    if (!view.empty()) maps.scale(view, factor);
  }
  impl_->rows.scale(factor);
}

TensorView Executor::input_gradient(std::string_view field) {
  for (int i = 0; i < impl_->build->fields; ++i) {
    const graph::GraphValue& value = base::at(impl_->build->values, i);
    if (value.name == field) return value.gradient;
  }
  return {};
}

TensorView Executor::value(std::string_view name) {
  for (const graph::GraphValue& value : impl_->build->values) {
    if (value.name == name) return value.data;
  }
  return {};
}

std::span<const RowGradient> Executor::row_gradients() const {
  return impl_->rows.summed();
}

std::vector<int> Executor::foreseen_tables() const {
  std::vector<int> tables;
  for (const Impl::Lookups& lookups : impl_->lookups) {
    for (const int parameter : lookups.node->parameters) {
      if (base::at(impl_->build->parameters, parameter).spec.role == Role::kRowTable)
        tables.push_back(parameter);
    }
  }
  std::sort(tables.begin(), tables.end());
  tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
  return tables;
}

void Executor::row_lookups(std::span<const TensorView> fields, const RowVisit& visit) {
  for (const Impl::Lookups& lookups : impl_->lookups) {
    std::vector<TensorView>& inputs = impl_->lookup_inputs;
    inputs.clear();
    for (const int field : lookups.fields) inputs.push_back(field < 0 ? TensorView{} : fields[field]);
    lookups.layer->lookups(inputs, [&](ParameterRef table, std::span<const std::int64_t> ids) {
      visit(base::at(lookups.node->parameters, table.index), ids);
    });
  }
}

void Executor::state(StateVisitor& visitor) {
  for (graph::Node& node : impl_->build->nodes) {
    for (std::size_t i = 0; i < node.sites.size(); ++i) {
      if (node.sites[i]->tensors.empty()) continue;
      visitor.enter(fmt::format("{}.{}", node.spec.name, i));
      for (const graph::SiteTensor& tensor : node.sites[i]->tensors) visitor.tensor(tensor.name, tensor.view);
      visitor.leave();
    }
  }
}

std::vector<PlanLine> Executor::memory_plan() const {
  return impl_->build->lines;
}
std::int64_t Executor::activation_bytes() const {
  return static_cast<std::int64_t>(impl_->build->plan_bytes);
}

std::int64_t Executor::allocated_bytes() const {
  std::int64_t sum = activation_bytes();
  for (const TensorView& view : impl_->build->persistent) sum += view.bytes();
  for (const PlanLine& line : impl_->build->held) sum += static_cast<std::int64_t>(line.bytes);
  return sum;
}

std::vector<std::pair<std::string, std::int64_t>> Executor::quantized_operands() const {
  return impl_->build->counter.counts;
}

std::vector<std::string> Executor::unquantized_sites() const {
  std::vector<std::string> result;
  for (const graph::Node& node : impl_->build->nodes) {
    for (const auto& site : node.sites) {
      if (site->kept) result.push_back(fmt::format("{} ({})", node.spec.name, site->module));
    }
  }
  return result;
}

std::int64_t Executor::linear_sites() const {
  std::int64_t sites = 0;
  for (const graph::Node& node : impl_->build->nodes) sites += static_cast<std::int64_t>(node.sites.size());
  return sites;
}

std::vector<std::string> Executor::folded_nodes() const {
  std::vector<std::string> result;
  for (const graph::Node& node : impl_->build->nodes) {
    if (node.folded_into >= 0) result.push_back(node.spec.name);
  }
  return result;
}

std::string Executor::find_non_finite(ParameterSet& weights, const RunSpec& run) {
  Impl& impl = *impl_;
  ReduceOps& reduce = impl.spec.device->family<ReduceOps>();
  impl.require_whole("find_non_finite");
  impl.use(weights);
  impl.pass.run = run;
  for (std::size_t n = 0; n < impl.build->nodes.size(); ++n) {
    graph::Node& node = impl.build->nodes[n];
    if (node.skipped) continue;
    const graph::PassScope scope(impl.place, impl.names[n], graph::PassKind::kForward);
    for (int p : node.parameters) {
      const TensorView tensor = weights.tensor(graph::index_in_weights(impl.pass, p));
      if (tensor.empty() || !dtype_is_real(tensor.dtype)) continue;
      const std::int64_t at = reduce.first_non_finite(tensor);
      if (at >= 0)
        return fmt::format("parameter '{}', element {}", base::at(impl.build->parameters, p).spec.name, at);
    }
    impl.pass.node = &node;
    if (node.talks) return "";  // the other replicas do not run along, so no later node can be repeated
    if (node.folded_into < 0) node.layer->forward(impl.forward_context);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const TensorView out = base::at(impl.build->values, node.outputs[i]).data;
      if (out.empty() || !dtype_is_real(out.dtype)) continue;
      const std::int64_t at = reduce.first_non_finite(out);
      if (at >= 0) return fmt::format("{} output {}, element {}", node.spec.name, i, at);
    }
  }
  return "";
}

TENON_ABI_END
