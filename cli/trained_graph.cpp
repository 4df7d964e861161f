// Components of a stored run, made and opened as training made them, on one rank.
#include "trained_graph.hpp"

#include "train/graph_edits.hpp"
#include "train/parts.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace tenon::cli {
namespace {

template <typename T, typename Convert>
void append(const TensorView& view, std::vector<double>& out, Convert convert) {
  for (const T value : view.span<T>()) out.push_back(static_cast<double>(convert(value)));
}

}  // namespace

std::vector<double> real_values(const TensorView& view) {
  std::vector<double> result;
  result.reserve(static_cast<std::size_t>(view.elements()));
  const auto same = [](auto value) { return value; };
  switch (view.dtype) {
    case DType::kF64:
      append<double>(view, result, same);
      break;
    case DType::kF32:
      append<float>(view, result, same);
      break;
    case DType::kBF16:
      append<std::uint16_t>(view, result, [](std::uint16_t bits) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
      });
      break;
    default:
      fail_run("values of type " + std::string(dtype_name(view.dtype)) + " are no real numbers");
  }
  return result;
}

TrainedGraph::TrainedGraph(StoredRun& run, CheckpointReader& reader, std::int64_t batch, const Build& build)
    : model_(run.make<Model>("model")),
      data_(run.make<Dataset>("data")),
      device_(run.make<Device>("device")),
      plain_(train::make_plain_precision()) {
  const config::CoreSettings& settings = run.checked().core;
  device_->open(
      {0, static_cast<int>(std::max<std::int64_t>(1, settings.device.threads)), settings.device.kernels});
  data_->open(settings.run.seed_order);
  if (run.checked().component("precision") != nullptr) precision_ = run.make<Precision>("precision");
  layers_ = make_registry_layers(run.registry(), run.host());
  ExecutorSpec spec;
  spec.layers = layers_.get();
  spec.device = device_.get();
  spec.host = &run.host();
  spec.precision = precision_ ? precision_.get() : plain_.get();
  spec.batch = batch > 0 ? batch : data_->batch();
  spec.training = false;
  spec.keep_values = true;
  const GraphSpec graph = train::edit_graph(build(*model_, data_->info()), run.checked().model_edits);
  for (const NodeSpec& node : graph.nodes) nodes_.push_back(node.name);
  executor_ = std::make_unique<Executor>(spec, graph, data_->info());
  load(reader);
}

void TrainedGraph::load(CheckpointReader& reader) {
  weights_ = make_parameter_set("live", executor_->parameters(), *device_, SetContents::kEverything);
  const std::string prefix = StoredRun::weights_prefix(reader);
  for (const ParameterInfo& info : executor_->parameters()) {
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(dtype_bytes(info.spec.dtype, info.spec.shape.elements())));
    const TensorView host{bytes.data(), info.spec.shape, info.spec.dtype, MemorySpace::kHost};
    reader.read(prefix + info.spec.name, host);
    device_->copy(host, weights_->tensor(info.index));
  }
  weights_->touch(-1);
}

void TrainedGraph::forward(std::int64_t first_sample) {
  RunSpec run;
  run.training = false;
  run.first_sample = first_sample;
  executor_->forward(*weights_, run);
}

TensorView TrainedGraph::host_copy(const TensorView& value, std::int64_t rows) {
  const TensorView part = value.rows(0, rows);
  copy_.resize(static_cast<std::size_t>(part.bytes()));
  const TensorView host{copy_.data(), part.shape, part.dtype, MemorySpace::kHost};
  device_->copy(part, host);
  device_->synchronize();
  return host;
}

}  // namespace tenon::cli
