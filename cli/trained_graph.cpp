// Evaluation as training does it, over all validation samples.
#include "trained_graph.hpp"

#include <tenon/error.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <string>

namespace tenon::cli {

TrainedGraph::TrainedGraph(TrainedRun& run, models::StoredRun& stored, const TrainedModel::Build& build)
    : model_(run, stored) {
  ExecutorSpec spec = model_.spec();
  spec.keep_values = true;
  // A separate statement: errors of the graph are not the data set's.
  const DataInfo& data = model_.data()->info();
  const GraphSpec graph = model_.graph(data, build);
  for (const NodeSpec& node : graph.nodes) nodes_.push_back(node.name);
  executor_ = std::make_unique<Executor>(spec, graph, data);
  weights_ = make_parameter_set("live", executor_->parameters(), model_.device(), SetContents::kEverything);
  use(0);
}

void TrainedGraph::use(int replica) {
  if (replica == used_) return;
  model_.load(*weights_, replica);
  model_.restore_sites(*executor_, replica);
  used_ = replica;
}

TensorView TrainedGraph::host_copy(const TensorView& value, std::int64_t rows) {
  const TensorView part = value.rows(0, rows);
  copy_.resize(part.bytes());
  const TensorView host{copy_.data(), part.shape, part.dtype, MemorySpace::kHost};
  device().copy(part, host);
  device().synchronize();
  return host;
}

namespace {

/// Elements of a host tensor of real numbers.
std::vector<double> real_values(const TensorView& view) {
  if (!has_real_values(view.dtype) || dtype_is_complex(view.dtype))
    fail_run("values of type " + std::string(dtype_name(view.dtype)) + " are no real numbers");
  std::vector<double> result;
  result.reserve(view.elements());
  for_each_real(view, [&](double value) { result.push_back(value); });
  return result;
}

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
  TrainedGraph graph(trained, *stored, [](auto& model, const DataInfo& data) { return model->build(data); });
  std::vector<Output> none;
  std::map<std::string, double> metrics;
  for (const Measured& value : evaluate(graph, none)) metrics["val/" + value.metric] = value.value;
  return metrics;
}

}  // namespace tenon::cli
