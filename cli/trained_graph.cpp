// Components of a stored run, created and opened as in training, on one rank; evaluation as training does it,
// over all validation samples.
#include "trained_graph.hpp"

#include "graph/row_table.hpp"
#include "loop/parts.hpp"
#include "run/state_io.hpp"

#include <tenon/error.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <string>

namespace tenon::cli {
std::vector<double> real_values(const TensorView& view) {
  if (!has_real_values(view.dtype) || dtype_is_complex(view.dtype))
    fail_run("values of type " + std::string(dtype_name(view.dtype)) + " are no real numbers");
  std::vector<double> result;
  result.reserve(view.elements());
  for_each_real(view, [&](double value) { result.push_back(value); });
  return result;
}

TrainedGraph::TrainedGraph(TrainedRun& run, models::StoredRun& stored, std::int64_t batch, const Build& build)
    : run_(run),
      stored_(stored),
      model_(run.make<Model>("model")),
      data_(run.make<Dataset>("data")),
      device_(run.make<Device>("device")),
      plain_(train::make_plain_precision()) {
  const config::CoreSettings& settings = run.checked().core;
  device_->open(
      {0, static_cast<int>(std::max<std::int64_t>(1, settings.device.threads)), settings.device.kernels});
  data_->open(settings.run.seed_order);
  if (run.checked().component("precision") != nullptr) precision_ = run.make<Precision>("precision");
  layers_ = make_registry_layers(run.registry(), run.host());
  run.host().set_layers(layers_.get());
  places_.set_precision(run.checked().resolved.root().find("precision"));
  run.host().set_places(&places_);
  // As many axes as the layers' options name, each of one rank.
  const std::size_t axes = settings.parallel.grid.size();
  mesh_ = Mesh(std::vector<int>(axes, 1), 0, nullptr, std::vector<Communicator*>(axes, nullptr));
  ExecutorSpec spec;
  spec.layers = layers_.get();
  spec.device = device_.get();
  spec.host = &run.host();
  spec.precision = precision_ ? precision_.get() : plain_.get();
  spec.mesh = &mesh_;
  spec.seed = settings.run.seed;
  spec.seed_rounding = settings.run.seed_rounding;
  spec.batch = batch > 0 ? batch : data_->batch();
  spec.steps = settings.run.steps;
  spec.training = false;
  spec.keep_values = true;
  // A separate statement: errors of the graph are not the data set's.
  const DataInfo& data = data_->info();
  const GraphSpec graph =
      train::edit_graph([&] { return build(model_, data); }, data, run.checked().model_edits);
  for (const NodeSpec& node : graph.nodes) nodes_.push_back(node.name);
  executor_ = std::make_unique<Executor>(spec, graph, data);
  weights_ = make_parameter_set("live", executor_->parameters(), *device_, SetContents::kEverything);
  use(0);
}

void TrainedGraph::use(int replica) {
  if (replica == used_) return;
  const train::StoredWeights& from = stored_.weights().at(replica);
  for (const ParameterInfo& info : executor_->parameters()) load(from.tensor(info.spec.name), info);
  weights_->touch(-1);
  restore_sites(replica);
  used_ = replica;
}

void TrainedGraph::load(const std::string& name, const ParameterInfo& info) {
  if (RowTable* table = weights_->table(info.index)) {
    graph::for_each_chunk(*table, [&](std::span<const std::int64_t> ids, TensorView rows) {
      stored_.checkpoint().read_slice(name, Shape{ids.front(), 0}, rows);
      table->write(ids, rows);
    });
    return;
  }
  std::vector<std::byte> bytes(dtype_bytes(info.spec.dtype, info.spec.shape.elements()));
  const TensorView host{bytes.data(), info.spec.shape, info.spec.dtype, MemorySpace::kHost};
  stored_.checkpoint().read(name, host);
  device_->copy(host, weights_->tensor(info.index));
}

// The state of sites and of the policy (histories of largest values, decisions) determines the rounding of
// operands. Under settings other than the run's there is none, and sites start as in a first slot.
void TrainedGraph::restore_sites(int replica) {
  const auto visit = [&](StateVisitor& visitor) {
    if (precision_) {
      visitor.enter("precision");
      precision_->state(visitor);
      visitor.leave();
    }
    visitor.enter("sites0");
    executor_->state(visitor);
    visitor.leave();
  };
  train::CheckpointSource source(
      stored_.checkpoint(), *device_,
      fmt::format("rank{}/", replica * run_.checked().core.parallel.ranks_per_replica()));
  train::StateCollector kept;
  visit(kept);
  if (!source.holds(kept)) return;
  train::StateRestorer restorer(source);
  visit(restorer);
}

void TrainedGraph::forward(std::int64_t first_sample) {
  RunSpec run;
  run.slot = slot();
  run.training = false;
  run.first_sample = first_sample;
  executor_->forward(*weights_, run);
}

TensorView TrainedGraph::host_copy(const TensorView& value, std::int64_t rows) {
  const TensorView part = value.rows(0, rows);
  copy_.resize(part.bytes());
  const TensorView host{copy_.data(), part.shape, part.dtype, MemorySpace::kHost};
  device_->copy(part, host);
  device_->synchronize();
  return host;
}

namespace {

/// Rows of the node's value that are samples of batch `b`.
void keep(TrainedGraph& graph, Output& output, const train::ValidationPass& pass, std::int64_t b) {
  const TensorView value = graph.executor().value(output.node);
  if (value.data == nullptr)
    fail_config(fmt::format("tenon evaluate: --write: the graph has no node '{}'; it has {}", output.node,
                            fmt::join(graph.nodes(), ", ")));
  if (value.shape.rank() == 0 || value.shape[0] != graph.data().batch())
    fail_config(fmt::format("tenon evaluate: --write: node '{}' has a value of shape {}, not one per sample",
                            output.node, value.shape.text()));
  output.shape = Shape(value.shape.extents().subspan(1));
  const std::int64_t width = output.shape.elements();
  output.values.resize(graph.data().info().val_samples * width);
  const std::vector<double> rows = real_values(graph.host_copy(value, pass.samples(b)));
  std::ranges::transform(rows, output.values.begin() + pass.first_sample(b) * width,
                         [](double element) { return static_cast<float>(element); });
}

}  // namespace

std::vector<Measured> evaluate(TrainedGraph& graph, std::vector<Output>& outputs) {
  const DataInfo& data = graph.data().info();
  if (data.val_samples == 0)
    fail_config(
        "tenon evaluate: the data has no samples to validate on; raise val_fraction, or name files of "
        "their own");
  const auto read = [&](const BatchRequest& request, std::span<const TensorView> fields) {
    graph.data().read(request, fields);
  };
  train::BatchReader reader(read, data, graph.device(), graph.executor());
  train::ValidationPass pass(reader, graph.executor(), data, graph.data().batch(), 0);
  pass.begin();
  // Distributed as in training: where replicas have weights of their own, each measures its share.
  for (int replica = 0; replica < graph.replicas(); ++replica) {
    for (std::int64_t b = replica; b < pass.batches(); b += graph.replicas()) {
      graph.use(replica);
      pass.forward(graph.weights(), b, graph.slot());
      for (Output& output : outputs) keep(graph, output, pass, b);
    }
  }
  return pass.end(nullptr, [](std::string_view metric, std::string_view reason) {
    std::cerr << "tenon: " << metric << " is undefined and not printed: " << reason << "\n";
  });
}

std::map<std::string, double> evaluate_run(const std::string& run, const std::vector<std::string>& sets) {
  TrainedRun trained("evaluate", run, sets);
  const auto stored = trained.open(std::nullopt);
  TrainedGraph graph(trained, *stored, 0,
                     [](auto& model, const DataInfo& data) { return model->build(data); });
  std::vector<Output> none;
  std::map<std::string, double> metrics;
  for (const Measured& value : evaluate(graph, none)) metrics["val/" + value.metric] = value.value;
  return metrics;
}

}  // namespace tenon::cli
