// Names and config.json of Nemotron-H and Mamba-2 in transformers, whose layer n is layer n of the pattern,
// and the models that they do not have. Here the rows of in_proj and of the convolution stand group after
// group, each with its z, x, B, C and time steps; there part after part, each with all groups.
#include "names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace tenon::decoder {
namespace {

const PatternLayer* first_of(const NamedModel& model, Kind kind) {
  const auto found =
      std::ranges::find(model.layers, kind, [](const PatternLayer& layer) { return layer.kind(); });
  return found == model.layers.end() ? nullptr : &*found;
}

/// Layers of a kind have equal options there.
void require_equal_layers(const NamedModel& model) {
  for (const PatternLayer& layer : model.layers) {
    const PatternLayer& first = *first_of(model, layer.kind());
    model.require(layer, "norm", "rms");
    model.require(layer, "eps", value_text(model.layers.front(), "eps"));
    if (!layer.is_mamba()) model.require(layer, "bias", value_text(first, "bias"));
    for (const std::string_view option : kKindOptions[static_cast<std::size_t>(layer.kind())])
      if (option != "rope_base" && option != "mamba_chunk")
        model.require(layer, option, value_text(first, option));
  }
  if (model.options.choice("norm", kNorms) != Norm::kRms)
    model.refuse("'norm' before the head is layer; expected rms");
  if (model.options.real("eps") != model.layers.front().real("eps"))
    model.refuse(fmt::format("'eps' before the head is {}, and that of layer 0 is {}; expected one",
                             model.options.real("eps"), model.layers.front().real("eps")));
  if (model.options.choice("position", kPositions) == Position::kLearned)
    model.refuse("'position' is learned; expected none");
}

void require_nemotron(const NamedModel& model) {
  require_equal_layers(model);
  if (model.options.boolean("tied")) model.refuse("'tied' is true; expected false");
  if (const PatternLayer* attention = first_of(model, Kind::kAttention)) {
    model.require(*attention, "position", "none");
    model.require(*attention, "qk_norm", "false");
    model.require(*attention, "window", "0");
    model.require(*attention, "bias", attention->has_bias("qkv") ? "[qkv, out]" : "[]");
  }
  if (const PatternLayer* ffn = first_of(model, Kind::kFfn);
      ffn != nullptr && value_text(*ffn, "ffn") != "gelu")
    model.require(*ffn, "ffn", "squared_relu");
  const PatternLayer* mamba = first_of(model, Kind::kMamba);
  if (mamba != nullptr && mamba->reals("mamba_dt_limits")[1] != 0)
    model.refuse(fmt::format("'mamba_dt_limits' of layer {} is {}; expected no upper bound, 0",
                             mamba->number(), value_text(*mamba, "mamba_dt_limits")));
}

void require_mamba(const NamedModel& model) {
  for (const PatternLayer& layer : model.layers)
    if (!layer.is_mamba())
      model.refuse(
          fmt::format("layer {} of 'pattern' is {}; expected M alone", layer.number(), layer.letter()));
  require_equal_layers(model);
  const std::int64_t inner = model.layers.front().mamba_width(), width = model.options.integer("width");
  if (inner % width != 0)
    model.refuse(fmt::format(
        "the heads of layer 0 have {} elements together; expected a multiple of 'width' {}", inner, width));
}

/// Where there is a bound. Infinity is as version 5 of transformers writes it.
void add_limits(ConfigText& config, const PatternLayer& mamba) {
  const auto limits = mamba.reals("mamba_dt_limits");
  if (limits[0] == 0 && limits[1] == 0) return;
  const std::string most = limits[1] > 0 ? ConfigText::real_json(limits[1]) : "{\"__float__\": \"Infinity\"}";
  config.json("time_step_limit", fmt::format("[{}, {}]", ConfigText::real_json(limits[0]), most));
}

std::string nemotron_config(const NamedModel& model) {
  ConfigText config(model.name(), "nemotron_h");
  std::string pattern;
  for (const PatternLayer& layer : model.layers) pattern += layer.letter();
  config.integer("vocab_size", model.vocabulary);
  config.integer("max_position_embeddings", model.context);
  config.integer("hidden_size", model.options.integer("width"));
  config.integer("num_hidden_layers", static_cast<std::int64_t>(model.layers.size()));
  config.text("hybrid_override_pattern", pattern);
  if (const PatternLayer* attention = first_of(model, Kind::kAttention)) {
    config.integer("num_attention_heads", attention->heads());
    config.integer("num_key_value_heads", attention->kv_heads());
    config.integer("head_dim", attention->head_width());
    config.truth("attention_bias", attention->has_bias("qkv"));
  }
  if (const PatternLayer* ffn = first_of(model, Kind::kFfn)) {
    config.integer("intermediate_size", ffn->integer("hidden"));
    config.text("mlp_hidden_act", value_text(*ffn, "ffn") == "gelu" ? "gelu_pytorch_tanh" : "relu2");
    config.truth("mlp_bias", ffn->has_bias("ffn"));
  }
  if (const PatternLayer* mamba = first_of(model, Kind::kMamba)) {
    config.integer("mamba_num_heads", mamba->integer("mamba_heads"));
    config.integer("mamba_head_dim", mamba->integer("mamba_head_width"));
    config.integer("ssm_state_size", mamba->integer("mamba_state"));
    config.integer("n_groups", mamba->integer("mamba_groups"));
    config.integer("conv_kernel", mamba->integer("mamba_conv"));
    config.integer("chunk_size", mamba->integer("mamba_chunk"));
    // The lower bound of time steps in transformers; in the published code it is that of initial values
    // alone.
    config.real("time_step_min", mamba->reals("mamba_dt_limits")[0]);
    add_limits(config, *mamba);
    config.text("mamba_hidden_act", "silu");
  }
  config.truth("use_bias", false);
  config.truth("use_conv_bias", true);
  config.truth("mamba_proj_bias", false);
  config.real("layer_norm_epsilon", model.options.real("eps"));
  config.real("attention_dropout", 0);
  config.real("hidden_dropout", 0);
  config.real("initializer_range", model.options.real("init_scale"));
  config.truth("tie_word_embeddings", false);
  return std::move(config).finish();
}

std::string mamba_config(const NamedModel& model) {
  const PatternLayer& mamba = model.layers.front();
  const std::int64_t width = model.options.integer("width");
  ConfigText config(model.name(), "mamba2");
  config.integer("vocab_size", model.vocabulary);
  config.integer("max_position_embeddings", model.context);
  config.integer("hidden_size", width);
  config.integer("num_hidden_layers", static_cast<std::int64_t>(model.layers.size()));
  config.integer("num_heads", mamba.integer("mamba_heads"));
  config.integer("head_dim", mamba.integer("mamba_head_width"));
  config.integer("expand", mamba.mamba_width() / width);
  config.integer("state_size", mamba.integer("mamba_state"));
  config.integer("n_groups", mamba.integer("mamba_groups"));
  config.integer("conv_kernel", mamba.integer("mamba_conv"));
  config.integer("chunk_size", mamba.integer("mamba_chunk"));
  add_limits(config, mamba);
  config.text("hidden_act", "silu");
  config.truth("use_bias", false);
  config.truth("use_conv_bias", true);
  config.real("layer_norm_epsilon", model.options.real("eps"));
  config.real("initializer_range", model.options.real("init_scale"));
  config.truth("tie_word_embeddings", model.options.boolean("tied"));
  return std::move(config).finish();
}

/// Rows that stand group after group here, in the order of parts there. `parts`: rows of each in one group.
std::vector<RowRange> by_part(std::int64_t groups, std::initializer_list<std::int64_t> parts) {
  if (groups == 1) return {};
  std::int64_t group_rows = 0;
  for (const std::int64_t rows : parts) group_rows += rows;
  std::vector<RowRange> blocks;
  std::int64_t begin = 0;
  for (const std::int64_t rows : parts) {
    for (std::int64_t group = 0; group < groups; ++group)
      blocks.push_back({group * group_rows + begin, rows});
    begin += rows;
  }
  return blocks;
}

void add_mamba(NamePlan& plan, const PatternLayer& layer, const std::string& here, const std::string& there) {
  const std::int64_t groups = layer.integer("mamba_groups"), state = layer.integer("mamba_state"),
                     heads = layer.integer("mamba_heads") / groups,
                     elements = heads * layer.integer("mamba_head_width");
  const auto map = [&](const std::string& name, std::vector<RowRange> blocks = {}) {
    add_rule(plan, here, {name.c_str()}, there + name);
    plan.rules.back().blocks = std::move(blocks);
  };
  map("in_proj.weight", by_part(groups, {elements, elements, state, state, heads}));
  map("conv1d.weight", by_part(groups, {elements, state, state}));
  map("conv1d.bias", by_part(groups, {elements, state, state}));
  for (const char* name : {"dt_bias", "A_log", "D", "norm.weight", "out_proj.weight"}) map(name);
}

}  // namespace

NamePlan hybrid_name_plan(const NamedModel& model) {
  const bool nemotron = model.architecture == Architecture::kNemotronH;
  nemotron ? require_nemotron(model) : require_mamba(model);
  NamePlan plan;
  plan.files.push_back({"config.json", nemotron ? nemotron_config(model) : mamba_config(model)});
  if (model.options.boolean("tied")) plan.derived.emplace_back("lm_head.weight");
  add_rule(plan, "model.", {"embed_tokens.weight"}, "backbone.embeddings.weight");
  add_rule(plan, "model.", {"norm.weight"}, "backbone.norm_f.weight");
  for (const PatternLayer& layer : model.layers) {
    const std::string here = fmt::format("model.layers.{}.", layer.number()),
                      there = fmt::format("backbone.layers.{}.", layer.number());
    add_rule(plan, here, {"norm.weight"}, there + "norm.weight");
    const auto map = [&](const char* folder, const std::string& name, bool bias) {
      add_rule(plan, here + folder, {(name + ".weight").c_str()}, there + "mixer." + name + ".weight");
      if (bias) add_rule(plan, here + folder, {(name + ".bias").c_str()}, there + "mixer." + name + ".bias");
    };
    if (layer.is_mamba()) add_mamba(plan, layer, here + "mamba.", there + "mixer.");
    if (layer.is_attention()) {
      for (const char* name : {"q_proj", "k_proj", "v_proj"}) map("self_attn.", name, layer.has_bias("qkv"));
      map("self_attn.", "o_proj", layer.has_bias("out"));
    }
    if (layer.is_ffn())
      for (const char* name : {"up_proj", "down_proj"}) map("mlp.", name, layer.has_bias("ffn"));
  }
  return plan;
}

}  // namespace tenon::decoder
