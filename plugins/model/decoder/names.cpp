// Names and config.json of Llama and Phi-3, whose layer n is layers 2n and 2n + 1 of the pattern, and the
// patterns that they have no model for. Both directions use these names; importer.cpp reads config.json.
#include "names.hpp"

#include "decoder.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <initializer_list>
#include <utility>

namespace tenon::decoder {

const char* NamedModel::name() const {
  constexpr const char* kNames[] = {kLlamaName, kPhi3Name, kNemotronHName, kMamba2Name};
  return kNames[static_cast<std::size_t>(architecture)];
}

void NamedModel::refuse(const std::string& what) const {
  fail_config(fmt::format("model decoder: {} has no such model: {}; --own-names exports the weights alone",
                          name(), what));
}

void NamedModel::require(const PatternLayer& layer, std::string_view option, std::string_view wanted) const {
  if (const std::string found = value_text(layer, option); found != wanted)
    refuse(fmt::format("'{}' of layer {} is {}; expected {}", option, layer.number(), found, wanted));
}

std::string value_text(const PatternLayer& layer, std::string_view name) {
  if (name == "head_width") return fmt::format("{}", layer.head_width());
  if (name == "kv_heads") return fmt::format("{}", layer.kv_heads());
  if (name == "position") return layer.rotates() ? "rope" : "none";
  if (name == "norm") return layer.choice("norm", kNorms) == Norm::kRms ? "rms" : "layer";
  if (name == "qk_norm") return layer.boolean("qk_norm") ? "true" : "false";
  if (name == "eps" || name == "rope_base") return fmt::format("{}", layer.real(name));
  if (name == "ffn") {
    constexpr const char* kNames[] = {"swiglu", "geglu", "squared_relu", "gelu"};
    return kNames[static_cast<std::size_t>(layer.choice("ffn", kFfns))];
  }
  if (name == "mamba_dt_limits") return fmt::format("[{}]", fmt::join(layer.reals("mamba_dt_limits"), ", "));
  if (name == "bias") {
    std::vector<std::string_view> parts;
    for (const char* part : {"qkv", "out", "ffn"}) {
      const bool means_it = layer.is_attention() == (std::string_view(part) != "ffn");
      if (means_it && layer.has_bias(part)) parts.emplace_back(part);
    }
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  return fmt::format("{}", layer.integer(name));
}

ConfigText::ConfigText(const char* architecture, const char* model_type)
    : text_(fmt::format("{{\n  \"architectures\": [\"{}\"],\n  \"model_type\": \"{}\",\n", architecture,
                        model_type)) {}

void ConfigText::json(std::string_view key, std::string_view value) {
  text_ += fmt::format("  \"{}\": {},\n", key, value);
}

void ConfigText::text(std::string_view key, std::string_view value) {
  json(key, fmt::format("\"{}\"", value));
}

void ConfigText::truth(std::string_view key, bool value) {
  json(key, value ? "true" : "false");
}

std::string ConfigText::real_json(double value) {
  const std::string digits = fmt::format("{}", value);
  return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
}

void ConfigText::real(std::string_view key, double value) {
  json(key, real_json(value));
}

void ConfigText::integer(std::string_view key, std::int64_t value) {
  json(key, std::to_string(value));
}

std::string ConfigText::finish() && {
  for (const char* key : {"bos_token_id", "pad_token_id"}) json(key, "null");
  return std::move(text_) + "  \"eos_token_id\": null\n}\n";
}

void add_rule(NamePlan& plan, const std::string& from, std::initializer_list<const char*> parts,
              const std::string& to) {
  NameRule& rule = plan.rules.emplace_back();
  for (const char* part : parts) rule.here.push_back(from + part);
  rule.there = {to};
}

namespace {

void require_uniform(const NamedModel& model) {
  for (const PatternLayer& layer : model.layers) {
    if (layer.kind() != (layer.number() % 2 == 0 ? Kind::kAttention : Kind::kFfn))
      model.refuse(fmt::format("layer {} of 'pattern' is {}; expected * and - in turns", layer.number(),
                               layer.letter()));
  }
  if (model.layers.size() % 2 != 0)
    model.refuse("the last layer of 'pattern' is *; expected * and - in turns");
  if (model.options.choice("position", kPositions) == Position::kLearned)
    model.refuse("'position' is learned; expected rope");
  const bool phi3 = model.architecture == Architecture::kPhi3;
  const PatternLayer &attention = model.layers[0], &ffn = model.layers[1];
  model.require(attention, "norm", "rms");
  model.require(attention, "position", "rope");
  model.require(attention, "qk_norm", "false");
  if (!phi3) model.require(attention, "window", "0");
  if (phi3 || attention.has_bias("qkv") != attention.has_bias("out")) {
    const bool both = !phi3 && attention.has_bias("qkv");
    model.require(attention, "bias", both ? "[qkv, out]" : "[]");
  }
  if (phi3) model.require(ffn, "bias", "[]");
  if (const std::string kind = value_text(ffn, "ffn"); kind != "swiglu" && kind != "geglu")
    model.refuse(fmt::format("'ffn' of layer {} is {}; expected swiglu or geglu", ffn.number(), kind));
  for (const PatternLayer& layer : model.layers) {
    const PatternLayer& first = layer.is_attention() ? attention : ffn;
    const auto same = [&](std::string_view option) {
      model.require(layer, option, value_text(first, option));
    };
    model.require(layer, "norm", "rms");
    model.require(layer, "eps", value_text(attention, "eps"));
    same("bias");
    for (const std::string_view option : kAttentionOptions)
      if (layer.is_attention()) same(option);
    for (const std::string_view option : kFfnOptions)
      if (!layer.is_attention()) same(option);
  }
  // The last norm has the model's settings.
  if (model.options.choice("norm", kNorms) != Norm::kRms)
    model.refuse("'norm' before the head is layer; expected rms");
  if (model.options.real("eps") != attention.real("eps"))
    model.refuse(fmt::format("'eps' before the head is {}, and that of layer 0 is {}; expected one",
                             model.options.real("eps"), attention.real("eps")));
}

std::string config_json(const NamedModel& model) {
  const PatternLayer &attention = model.layers[0], &ffn = model.layers[1];
  const bool phi3 = model.architecture == Architecture::kPhi3;
  ConfigText config(model.name(), phi3 ? "phi3" : "llama");
  config.integer("vocab_size", model.vocabulary);
  config.integer("max_position_embeddings", model.context);
  if (phi3) config.integer("original_max_position_embeddings", model.context);
  config.integer("hidden_size", model.options.integer("width"));
  config.integer("intermediate_size", ffn.integer("hidden"));
  config.integer("num_hidden_layers", static_cast<std::int64_t>(model.layers.size() / 2));
  config.integer("num_attention_heads", attention.heads());
  config.integer("num_key_value_heads", attention.kv_heads());
  config.integer("head_dim", attention.head_width());
  config.text("hidden_act", ffn.choice("ffn", kFfns) == Ffn::kSwiglu ? "silu" : "gelu_pytorch_tanh");
  config.real("rms_norm_eps", attention.real("eps"));
  config.real("rope_theta", attention.real("rope_base"));
  if (phi3) {
    const std::int64_t window = attention.integer("window");
    config.json("sliding_window", window > 0 ? std::to_string(window) : "null");
  } else {
    config.truth("attention_bias", attention.has_bias("qkv"));
    config.truth("mlp_bias", ffn.has_bias("ffn"));
  }
  config.real("attention_dropout", 0);
  config.real("initializer_range", model.options.real("init_scale"));
  config.truth("tie_word_embeddings", model.options.boolean("tied"));
  return std::move(config).finish();
}

NamePlan transformer_name_plan(const NamedModel& model) {
  require_uniform(model);
  const bool phi3 = model.architecture == Architecture::kPhi3;
  NamePlan plan;
  plan.files.push_back({"config.json", config_json(model)});
  plan.derived = {"model.layers.*.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"};
  if (model.options.boolean("tied")) plan.derived.emplace_back("lm_head.weight");
  for (std::size_t n = 0; n < model.layers.size() / 2; ++n) {
    const std::string attention = fmt::format("model.layers.{}.", 2 * n),
                      ffn = fmt::format("model.layers.{}.", 2 * n + 1),
                      there = fmt::format("model.layers.{}.", n);
    add_rule(plan, attention, {"norm.weight"}, there + "input_layernorm.weight");
    add_rule(plan, ffn, {"norm.weight"}, there + "post_attention_layernorm.weight");
    if (phi3) {
      add_rule(plan, attention + "self_attn.", {"q_proj.weight", "k_proj.weight", "v_proj.weight"},
               there + "self_attn.qkv_proj.weight");
      add_rule(plan, ffn + "mlp.", {"gate_proj.weight", "up_proj.weight"}, there + "mlp.gate_up_proj.weight");
    }
    const auto map = [&](const std::string& from, const std::string& name, bool bias) {
      add_rule(plan, from, {(name + ".weight").c_str()}, there + name + ".weight");
      if (bias) add_rule(plan, from, {(name + ".bias").c_str()}, there + name + ".bias");
    };
    const bool qkv = model.layers[2 * n].has_bias("qkv"), out = model.layers[2 * n].has_bias("out"),
               inside = model.layers[2 * n + 1].has_bias("ffn");
    if (!phi3)
      for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
        map(attention, name, qkv);
    map(attention, "self_attn.o_proj", out);
    if (!phi3)
      for (const char* name : {"mlp.gate_proj", "mlp.up_proj"}) map(ffn, name, inside);
    map(ffn, "mlp.down_proj", inside);
  }
  return plan;
}

}  // namespace

Architecture Decoder::architecture() const {
  if (options_.has("export_as")) return options_.choice("export_as", kArchitectures);
  const auto count = [&](Kind kind) {
    return std::ranges::count(layers_, kind, [](const PatternLayer& layer) { return layer.kind(); });
  };
  if (count(Kind::kMamba) == static_cast<std::ptrdiff_t>(layers_.size())) return Architecture::kMamba2;
  if (count(Kind::kMamba) > 0) return Architecture::kNemotronH;
  return layers_.front().is_attention() && layers_.front().integer("window") > 0 ? Architecture::kPhi3
                                                                                 : Architecture::kLlama;
}

NamePlan Decoder::name_plan(const DataInfo& data) {
  const NamedModel model{architecture(), options_, layers_, vocabulary_rows(options_, data),
                         options_.has("context") ? options_.integer("context") : time_of(data)};
  for (const PatternLayer& layer : layers_)
    if (layer.skipped()) model.refuse(fmt::format("'block' skips layer {}", layer.number()));
  const bool hybrid =
      model.architecture == Architecture::kNemotronH || model.architecture == Architecture::kMamba2;
  return hybrid ? hybrid_name_plan(model) : transformer_name_plan(model);
}

}  // namespace tenon::decoder
