// A layer that goes takes its nodes with it, and what read its sum reads the stream before it.
#include "pruned_model.hpp"

#include "calibration.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace tenon::minitron {
namespace {

void set_integer(NodeSpec& node, std::string_view name, std::int64_t value) {
  for (NamedOption& option : node.options)
    if (option.name == name) option.value = value;
}

/// Options of a node of the layer, whose name ends in `part`.
void resize_node(NodeSpec& node, std::string_view part, const LayerShape& to, std::int64_t width) {
  const std::int64_t queries = to.heads * to.head_width, keys = to.kv_heads * to.head_width;
  const std::pair<std::string_view, std::int64_t> features[] = {
      {"self_attn.q_proj", queries}, {"self_attn.k_proj", keys},   {"self_attn.v_proj", keys},
      {"self_attn.o_proj", width},   {"mlp.gate_proj", to.hidden}, {"mlp.up_proj", to.hidden},
      {"mlp.down_proj", width}};
  for (const auto& [name, extent] : features)
    if (part == name) set_integer(node, "features", extent);
  if (part == "self_attn" || part == "self_attn.q_rotary") set_integer(node, "heads", to.heads);
  if (part == "self_attn") set_integer(node, "kv_heads", to.kv_heads);
  if (part == "self_attn.k_rotary") set_integer(node, "heads", to.kv_heads);
  if (part == "mamba") {
    set_integer(node, "heads", to.mamba_heads);
    set_integer(node, "head_width", to.mamba_head_width);
  }
}

}  // namespace

GraphSpec resized(const GraphSpec& graph, const DecoderShape& shape, const Plan& plan) {
  GraphSpec result;
  std::map<std::string, std::string> renamed;  // values of the source
  for (const NodeSpec& before : graph.nodes) {
    NodeSpec node = before;
    const LayerShape* of = nullptr;
    for (const LayerShape& layer : shape.layers)
      if (before.name.starts_with(layer.prefix())) of = &layer;
    const PlannedLayer* planned = nullptr;
    for (const PlannedLayer& layer : plan.layers)
      if (of != nullptr && layer.from.number == of->number) planned = &layer;
    const auto now = [&](const std::string& value) {
      const auto found = renamed.find(value);
      return found == renamed.end() ? value : found->second;
    };
    if (of != nullptr && planned == nullptr) {
      if (before.name == of->prefix() + "residual") renamed[before.name] = now(before.inputs[0]);
      continue;
    }
    for (std::string& input : node.inputs) input = now(input);
    if (planned != nullptr) {
      const std::string part = before.name.substr(of->prefix().size());
      node.name = planned->to.prefix() + part;
      renamed[before.name] = node.name;
      resize_node(node, part, planned->to, plan.width);
    } else {
      set_integer(node, "width", plan.width);  // of embeddings
    }
    result.nodes.push_back(std::move(node));
  }
  return result;
}

PrunedModel::PrunedModel(StoredModel& source, DecoderShape shape, Plan plan, const Targets& targets,
                         const Kept& kept, bool merge)
    : source_(source),
      shape_(std::move(shape)),
      plan_(std::move(plan)),
      description_(planned_model(source.description(), shape_, plan_, targets)),
      cuts_(cuts_of(source, shape_, plan_, kept, merge)) {
  for (const TensorCut& cut : cuts_) parameters_.push_back(cut.result);
}

void PrunedModel::read(std::string_view tensor, const Shape&, TensorView out) {
  const auto cut = std::ranges::find(cuts_, tensor, &TensorCut::to);
  if (cut == cuts_.end() || cut->result.shape != out.shape || cut->result.dtype != out.dtype)
    fail_plugin(fmt::format("read(): the cut model has no '{}' of this shape and type", tensor));
  std::byte* to = out.as<std::byte>();
  read_cut(source_, *cut, [&](TensorView piece) {
    std::memcpy(to, piece.data, static_cast<std::size_t>(piece.bytes()));
    to += piece.bytes();
  });
}

GraphSpec PrunedModel::graph(const DataInfo& data) {
  return resized(plain_graph(source_, data), shape_, plan_);
}

}  // namespace tenon::minitron
