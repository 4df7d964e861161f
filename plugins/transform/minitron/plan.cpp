// A target holds for all layers, so a [[model.block]] that sets the same option loses it. Where layers go,
// the pattern is written out without them and the tables of blocks name the new numbers.
#include "plan.hpp"

#include <tenon/error.hpp>
#include <tenon/options.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

namespace tenon::minitron {
namespace {

/// An option of the decoder that a target sets, the layers that have it, and its extent there.
struct Axis {
  const char* name;
  LayerKind kind;
  std::optional<std::int64_t> Targets::*target;
  std::int64_t LayerShape::*extent;
};
constexpr std::array kAxes{
    Axis{"hidden", LayerKind::kFfn, &Targets::hidden, &LayerShape::hidden},
    Axis{"heads", LayerKind::kAttention, &Targets::heads, &LayerShape::heads},
    Axis{"kv_heads", LayerKind::kAttention, &Targets::kv_heads, &LayerShape::kv_heads},
    Axis{"mamba_heads", LayerKind::kMamba, &Targets::mamba_heads, &LayerShape::mamba_heads},
    Axis{"mamba_head_width", LayerKind::kMamba, &Targets::mamba_head_width, &LayerShape::mamba_head_width},
};

const char* kind_name(LayerKind kind) {
  return kind == LayerKind::kAttention ? "attention" : kind == LayerKind::kMamba ? "mamba" : "ffn";
}

/// Extents of one layer after the cut; targets that were not given follow from those that were.
LayerShape cut_layer(const LayerShape& from, const Targets& targets) {
  LayerShape to = from;
  if (from.skipped) return to;
  for (const Axis& axis : kAxes)
    if (axis.kind == from.kind && targets.*axis.target) to.*axis.extent = *(targets.*axis.target);
  if (from.kind != LayerKind::kAttention) return to;
  const std::int64_t group = from.heads / from.kv_heads;
  if (targets.kv_heads && !targets.heads) to.heads = to.kv_heads * group;
  // Without groups a head has keys and values of its own, which go with it.
  if (targets.heads && !targets.kv_heads && group == 1) to.kv_heads = to.heads;
  return to;
}

void check_attention(const LayerShape& from, const LayerShape& to, std::vector<std::string>& problems) {
  const std::int64_t group = from.heads / from.kv_heads;
  if (to.heads % to.kv_heads != 0) {
    problems.push_back(fmt::format(
        "layer {}: kv_heads {} does not divide heads {}; every head of keys and values that stays "
        "keeps the same number of query heads, so give a multiple, or both targets",
        from.number, to.kv_heads, to.heads));
  } else if (to.heads / to.kv_heads > group) {
    problems.push_back(fmt::format(
        "layer {}: heads {} over kv_heads {} are {} query heads to a group, and the model has {}; a "
        "cut leaves at most as many",
        from.number, to.heads, to.kv_heads, to.heads / to.kv_heads, group));
  }
}

/// One target sets one option for all layers, so what follows from it must be the same in all of them.
void check_alike(const Targets& targets, const DecoderShape& shape, std::vector<std::string>& problems) {
  if (!targets.heads && !targets.kv_heads) return;
  const LayerShape* first = nullptr;
  for (const LayerShape* layer : shape.present()) {
    if (layer->kind != LayerKind::kAttention) continue;
    if (first == nullptr) first = layer;
    const LayerShape here = cut_layer(*layer, targets), there = cut_layer(*first, targets);
    if (here.heads == there.heads && here.kv_heads == there.kv_heads) continue;
    problems.push_back(fmt::format(
        "layers {} and {} have groups of {} and {} query heads, so {} alone leaves them unlike; give "
        "heads and kv_heads",
        first->number, layer->number, first->heads / first->kv_heads, layer->heads / layer->kv_heads,
        targets.heads ? "heads" : "kv_heads"));
    return;
  }
}

void check_layers(const std::vector<std::int64_t>& kept, const DecoderShape& shape,
                  std::vector<std::string>& problems) {
  std::set<std::int64_t> seen;
  const auto count = static_cast<std::int64_t>(shape.layers.size());
  for (const std::int64_t number : kept) {
    if (number < 0 || number >= count)
      problems.push_back(fmt::format("layers: {} is no layer of the model; expected numbers from 0 to {}",
                                     number, count - 1));
    else if (shape.layers[number].skipped)
      problems.push_back(fmt::format("layers: {} is skipped by [[model.block]], so it cannot stay", number));
    if (!seen.insert(number).second) problems.push_back(fmt::format("layers: {} is there twice", number));
  }
  if (kept.empty()) problems.emplace_back("layers: names none; expected at least one that stays");
}

/// Options of a block that a target sets are gone; true if more than `at` is left.
bool strip(Value& block, const Targets& targets) {
  for (const Axis& axis : kAxes)
    if (targets.*axis.target) block.erase(axis.name);
  // Heads that follow from the other target.
  if (targets.kv_heads) block.erase("heads");
  if (targets.heads) block.erase("kv_heads");
  return block.table().size() > 1;
}

/// Whether the `at` of a block is for the layer.
bool is_for(std::string_view at, const LayerShape& layer) {
  const std::size_t colon = std::min(at.find(':'), at.size());
  if (colon < at.size() && at.substr(colon + 1) != kind_name(layer.kind)) return false;
  return matches_pattern(at.substr(0, colon), std::to_string(layer.number));
}

/// The block for the new numbers of the layers that it was for.
void renumber(const Value& block, const Plan& plan, Value::Array& blocks) {
  const std::string& at = block.find("at")->text();
  const bool all = at.substr(0, at.find(':')) == "*";
  for (const PlannedLayer& layer : plan.layers) {
    if (!is_for(at, layer.from)) continue;
    Value one = block;
    if (!all) one.set("at", Value(std::to_string(layer.to.number)), {});
    blocks.push_back(std::move(one));
    if (all) return;
  }
}

/// The width of heads is width / heads unless the table says it: said where either changes.
void fix_head_width(Value& model, const DecoderShape& shape, const Targets& targets) {
  if (model.find("head_width") != nullptr || !(targets.width || targets.heads || targets.kv_heads)) return;
  std::int64_t common = 0;
  for (const LayerShape* layer : shape.present()) {
    if (layer->kind != LayerKind::kAttention) continue;
    if (common != 0 && common != layer->head_width)
      fail_config(fmt::format(
          "transform minitron: attention layers have heads of {} and {} elements, which follow "
          "from width and heads; set head_width in [model] and its blocks before the model is cut",
          common, layer->head_width));
    common = layer->head_width;
  }
  if (common != 0) model.set("head_width", Value(common), {});
}

void set_pattern(Value& model, const Plan& plan) {
  std::string pattern;
  for (const PlannedLayer& layer : plan.layers) pattern += layer.to.letter();
  model.set("pattern", Value(std::move(pattern)), {});
  model.erase("repeat");
  // Which rules a shape obeys follows from its layers.
  if (Value* rules = model.find("rules")) *rules = Value(std::string("free"));
}

/// What a model has in all its layers becomes the option of the whole.
void set_extents(Value& model, const Plan& plan, const Targets& targets) {
  if (targets.width) model.set("width", Value(*targets.width), {});
  for (const Axis& axis : kAxes) {
    const bool follows =
        axis.kind == LayerKind::kAttention && (targets.heads || targets.kv_heads);  // each from the other
    if (!(targets.*axis.target) && !follows) continue;
    for (const PlannedLayer& layer : plan.layers) {
      if (layer.to.kind != axis.kind || layer.to.skipped) continue;
      const bool unsaid = axis.extent == &LayerShape::kv_heads && model.find("kv_heads") == nullptr &&
                          layer.to.kv_heads == layer.to.heads;
      if (!unsaid) model.set(axis.name, Value(layer.to.*axis.extent), {});
      break;
    }
  }
}

}  // namespace

void require_possible(const Targets& targets, const DecoderShape& shape, std::string_view folder) {
  std::vector<std::string> problems;
  if (targets.width && *targets.width > shape.width)
    problems.push_back(fmt::format("width {} is more than the {} of the model; a cut only leaves out",
                                   *targets.width, shape.width));
  for (const Axis& axis : kAxes) {
    if (targets.*axis.target && !shape.has(axis.kind))
      problems.push_back(fmt::format("{}: the model has no {} layer", axis.name, kind_name(axis.kind)));
  }
  for (const LayerShape* from : shape.present()) {
    const LayerShape to = cut_layer(*from, targets);
    const std::size_t before = problems.size();
    for (const Axis& axis : kAxes) {
      if (axis.kind == from->kind && to.*axis.extent > from->*axis.extent)
        problems.push_back(
            fmt::format("layer {}: {} {} is more than the {} of the model; a cut only leaves out",
                        from->number, axis.name, to.*axis.extent, from->*axis.extent));
    }
    if (from->kind == LayerKind::kAttention && problems.size() == before)
      check_attention(*from, to, problems);
    if (from->kind == LayerKind::kMamba && to.mamba_heads % to.mamba_groups != 0)
      problems.push_back(fmt::format(
          "layer {}: mamba_heads {} are no multiple of the {} groups, which share B and C and must "
          "keep equally many heads; expected a multiple",
          from->number, to.mamba_heads, to.mamba_groups));
  }
  check_alike(targets, shape, problems);
  if (targets.layers && targets.keep_layers)
    problems.emplace_back("layers and keep_layers say the same twice; expected one of them");
  if (targets.layers) check_layers(*targets.layers, shape, problems);
  const auto present = static_cast<std::int64_t>(shape.present().size());
  if (targets.keep_layers && *targets.keep_layers > present)
    problems.push_back(
        fmt::format("keep_layers {} is more than the {} layers of the model", *targets.keep_layers, present));
  if (!problems.empty())
    fail_config(fmt::format("transform minitron: {} cannot be cut to these targets:\n  {}", folder,
                            fmt::join(problems, "\n  ")));
}

Plan make_plan(const DecoderShape& shape, const Targets& targets, const std::vector<std::int64_t>* kept) {
  Plan plan;
  plan.width = targets.width.value_or(shape.width);
  for (const LayerShape& layer : shape.layers) {
    if (kept != nullptr && !std::ranges::binary_search(*kept, layer.number)) continue;
    PlannedLayer& planned = plan.layers.emplace_back(PlannedLayer{layer, cut_layer(layer, targets)});
    planned.to.number = static_cast<std::int64_t>(plan.layers.size()) - 1;
  }
  plan.renumbered = plan.layers.size() < shape.layers.size();
  return plan;
}

bool cuts_inside(const DecoderShape& shape, const Plan& plan) {
  const auto differs = [](const PlannedLayer& layer) {
    return std::ranges::any_of(
        kAxes, [&](const Axis& axis) { return layer.to.*axis.extent != layer.from.*axis.extent; });
  };
  return plan.width < shape.width || std::ranges::any_of(plan.layers, differs);
}

ModelDescription planned_model(const ModelDescription& source, const DecoderShape& shape, const Plan& plan,
                               const Targets& targets) {
  ModelDescription result = source;
  Value& model = result.model;
  model.erase("distil");  // of its training alone
  fix_head_width(model, shape, targets);
  set_extents(model, plan, targets);
  if (plan.renumbered) set_pattern(model, plan);
  if (const Value* before = model.find("block")) {
    Value::Array blocks;
    for (Value block : before->array()) {
      if (!strip(block, targets)) continue;
      if (plan.renumbered)
        renumber(block, plan, blocks);
      else
        blocks.push_back(std::move(block));
    }
    if (blocks.empty())
      model.erase("block");
    else
      model.set("block", Value(std::move(blocks)), {});
  }
  return result;
}

}  // namespace tenon::minitron
