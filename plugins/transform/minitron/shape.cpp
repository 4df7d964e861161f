// Names of nodes are those of the model `decoder`; another blueprint is refused.
#include "shape.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>

namespace tenon::minitron {
namespace {

constexpr std::int64_t kTime = 65536;

/// Keys of [model] that change the graph node by node.
constexpr const char* kEdits[] = {"override", "layer", "remove", "insert"};

/// Data of tokens as long as the model allows: extents of layers do not depend on the time, but a model may
/// refuse samples that are shorter than its convolutions.
DataInfo token_data(const StoredModel& source) {
  const Value* context = source.description().model.find("context");
  const std::int64_t time = context == nullptr ? kTime : context->integer();
  DataInfo data;
  for (const char* name : {"tokens", "targets"}) data.fields.push_back({name, DType::kI32, Shape{time}});
  data.attributes = source.description().attributes;
  return data;
}

std::int64_t features_of(const GraphSpec& graph, const std::string& node) {
  const NodeSpec* found = find_node(graph, node);
  return found == nullptr ? 0 : integer_option(*found, "features", 0);
}

/// "*-" with repeat = 2 is "*-*-".
std::string letters_of(const Value& model) {
  const Value *pattern = model.find("pattern"), *repeat = model.find("repeat");
  std::string letters;
  for (std::int64_t i = 0; i < (repeat == nullptr ? 1 : repeat->integer()); ++i) letters += pattern->text();
  return letters;
}

LayerShape layer_of(const GraphSpec& graph, std::int64_t number, char letter) {
  LayerShape layer;
  layer.number = number;
  layer.kind = letter == '*' ? LayerKind::kAttention : letter == 'M' ? LayerKind::kMamba : LayerKind::kFfn;
  const std::string prefix = layer.prefix();
  layer.skipped = find_node(graph, prefix + "residual") == nullptr;
  if (layer.skipped) return layer;
  if (layer.kind == LayerKind::kAttention) {
    const NodeSpec* node = find_node(graph, prefix + "self_attn");
    layer.heads = integer_option(*node, "heads", 1);
    layer.kv_heads = integer_option(*node, "kv_heads", layer.heads);
    layer.head_width = features_of(graph, prefix + "self_attn.q_proj") / layer.heads;
  } else if (layer.kind == LayerKind::kFfn) {
    layer.hidden = features_of(graph, prefix + "mlp.up_proj");
  } else {
    const NodeSpec* node = find_node(graph, prefix + "mamba");
    layer.mamba_heads = integer_option(*node, "heads", 1);
    layer.mamba_head_width = integer_option(*node, "head_width", 64);
    layer.mamba_state = integer_option(*node, "state", 128);
    layer.mamba_groups = integer_option(*node, "groups", 1);
  }
  return layer;
}

}  // namespace

std::string LayerShape::prefix() const {
  return fmt::format("model.layers.{}.", number);
}

char LayerShape::letter() const {
  return kind == LayerKind::kAttention ? '*' : kind == LayerKind::kMamba ? 'M' : '-';
}

std::int64_t LayerShape::in_rows() const {
  const std::int64_t heads = mamba_heads / mamba_groups;
  return 2 * heads * mamba_head_width + 2 * mamba_state + heads;
}

bool DecoderShape::has(LayerKind kind) const {
  return std::ranges::any_of(layers,
                             [&](const LayerShape& layer) { return layer.kind == kind && !layer.skipped; });
}

std::vector<const LayerShape*> DecoderShape::present() const {
  std::vector<const LayerShape*> list;
  for (const LayerShape& layer : layers)
    if (!layer.skipped) list.push_back(&layer);
  return list;
}

std::int64_t integer_option(const NodeSpec& node, std::string_view name, std::int64_t fallback) {
  for (const NamedOption& option : node.options) {
    const auto* value = std::get_if<std::int64_t>(&option.value);
    if (option.name == name && value != nullptr) return *value;
  }
  return fallback;
}

std::string text_option(const NodeSpec& node, std::string_view name) {
  for (const NamedOption& option : node.options) {
    const auto* value = std::get_if<std::string>(&option.value);
    if (option.name == name && value != nullptr) return *value;
  }
  return {};
}

const NodeSpec* find_node(const GraphSpec& graph, std::string_view name) {
  const auto found = std::ranges::find(graph.nodes, name, &NodeSpec::name);
  return found == graph.nodes.end() ? nullptr : &*found;
}

DecoderShape read_shape(StoredModel& source) {
  const Value& model = source.description().model;
  const Value* type = model.find("type");
  const std::string found = type != nullptr && type->is_text() ? type->text() : "without a type";
  if (found != "decoder")
    fail_config(fmt::format(
        "transform minitron: {} is a model of type {}; expected decoder, whose layers are letters "
        "of a pattern",
        source.folder(), found));
  for (const char* edit : kEdits)
    if (const Value* found = model.find(edit); found != nullptr && !found->array().empty())
      fail_config(
          fmt::format("transform minitron: [model] of {} has '{}', an edit of single nodes, which need not "
                      "fit the smaller model; expected a decoder without edits",
                      source.folder(), edit));
  const GraphSpec graph = source.graph(token_data(source));
  DecoderShape shape;
  shape.width = model.find("width")->integer();
  std::int64_t number = 0;
  for (const char letter : letters_of(model)) shape.layers.push_back(layer_of(graph, number++, letter));
  return shape;
}

}  // namespace tenon::minitron
