// Sums are in double; metric names are built once, so that later observations allocate nothing.
#include "health.hpp"

#include <tenon/tensor_values.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::health {
namespace {

/// Requires the same type and shape of both tensors.
double squared_distance(const TensorView& a, const TensorView& b) {
  // Works in blocks: one pass, without a copy of the tensor.
  constexpr std::int64_t kBlock = 256;
  double values[2 * kBlock], sum = 0;
  const std::int64_t bytes = dtype_bytes(a.dtype, 1);
  for (std::int64_t first = 0; first < a.elements(); first += kBlock) {
    TensorView part = a;
    part.shape = Shape{std::min(kBlock, a.elements() - first)};
    std::int64_t n = 0, i = 0;
    part.data = static_cast<std::byte*>(a.data) + first * bytes;
    for_each_real(part, [&](double value) { values[n++] = value; });
    part.data = static_cast<std::byte*>(b.data) + first * bytes;
    for_each_real(part, [&](double value) {
      const double distance = value - values[i++];
      sum += distance * distance;
    });
  }
  return sum;
}

double sum_of_squares(const TensorView& view) {
  double sum = 0;
  for_each_real(view, [&](double value) { sum += value * value; });
  return sum;
}

/// Number and stride of the units: channels of images [n, c, h, w], otherwise the last dimension.
struct Units {
  std::int64_t count, inner;
};
Units units_of(const Shape& shape) {
  if (shape.rank() == 4) return {shape[1], shape[2] * shape[3]};
  return {shape[shape.rank() - 1], 1};
}

}  // namespace

Health::Health(const Options& options, Host& host)
    : every_(options.integer("every")),
      dead_below_(options.real("dead_below")),
      sink_(static_cast<MetricSink*>(host.query(MetricSink::kId))) {
  for (const std::string_view type : options.texts("activations")) activations_.emplace_back(type);
}

void* Health::query(std::string_view interface_id) {
  return interface_id == TensorObserver::kId ? static_cast<TensorObserver*>(this) : nullptr;
}

TensorRequest Health::tensors(std::int64_t slot) {
  looked_ = false;
  for (LayerSums& layer : layers_) layer.gradient = layer.update = layer.weight = 0;
  for (NodeUnits& node : nodes_) node.seen = false;
  const bool look = (slot + 1) % every_ == 0;
  return {.parameters = look, .outputs = look && !activations_.empty()};
}

Health::LayerSums& Health::layer_of(std::size_t position, std::string_view parameter) {
  if (position < layer_of_.size()) return layers_[layer_of_[position]];
  const std::string layer(parameter.substr(0, parameter.rfind('.')));
  auto found = std::find_if(layers_.begin(), layers_.end(),
                            [&](const LayerSums& known) { return known.layer == layer; });
  if (found == layers_.end()) {
    layers_.push_back({layer, "grad_norm/" + layer, "update_ratio/" + layer});
    found = layers_.end() - 1;
  }
  layer_of_.push_back(static_cast<std::size_t>(found - layers_.begin()));
  return *found;
}

void Health::on_parameters(std::span<const ObservedParameter> parameters) {
  looked_ = true;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ObservedParameter& parameter = parameters[i];
    LayerSums& sums = layer_of(i, parameter.info->spec.name);
    const double scale = parameter.gradient_scale;
    sums.gradient += scale * scale * sum_of_squares(parameter.gradient);
    sums.update += squared_distance(parameter.before, parameter.after);
    sums.weight += sum_of_squares(parameter.before);
  }
}

void Health::on_output(const ObservedOutput& output) {
  if (std::find(activations_.begin(), activations_.end(), output.type) == activations_.end()) return;
  if (!has_real_values(output.value.dtype) || dtype_is_complex(output.value.dtype)) return;
  auto found = std::find_if(nodes_.begin(), nodes_.end(),
                            [&](const NodeUnits& node) { return node.node == output.node; });
  if (found == nodes_.end()) {
    nodes_.push_back({std::string(output.node), "dead_units/" + std::string(output.node)});
    found = nodes_.end() - 1;
  }
  const Units units = units_of(output.value.shape);
  alive_.assign(units.count, 0);
  std::int64_t at = 0;
  for_each_real(output.value, [&](double value) {
    // NaN counts as alive.
    if (!(std::abs(value) <= dead_below_)) alive_[at / units.inner % units.count] = 1;
    ++at;
  });
  const auto dead = std::count(alive_.begin(), alive_.end(), static_cast<unsigned char>(0));
  found->dead_share = static_cast<double>(dead) / static_cast<double>(units.count);
  found->seen = true;
}

void Health::on_slot(const SlotRecord& record) {
  const std::int64_t step = record.slot + 1;
  for (const LayerSums& layer : layers_) {
    if (!looked_) break;
    sink_->add(step, Split::kTrain, layer.gradient_norm, std::sqrt(layer.gradient));
    // Zero weights (fresh biases) have no ratio.
    if (layer.weight > 0)
      sink_->add(step, Split::kTrain, layer.update_ratio, std::sqrt(layer.update / layer.weight));
  }
  for (const NodeUnits& node : nodes_) {
    if (node.seen) sink_->add(step, Split::kTrain, node.metric, node.dead_share);
  }
}

}  // namespace tenon::health

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.health",
                               .version = "0.1.0",
                               .summary = "gradient norms, update ratios and dead units per layer"},
             tenon::health::Health)
