// Names and config.json of a decoder in transformers, and the patterns that other programs have no model for.
// Both directions use these names; importer.cpp reads config.json.
#include "decoder.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <initializer_list>
#include <utility>

namespace tenon::decoder {

// Names in transformers, whose layer n is layers 2n and 2n + 1 of the pattern.

Architecture Decoder::architecture() const {
  if (options_.has("export_as")) return options_.choice("export_as", kArchitectures);
  return layers_.front().is_attention() && layers_.front().integer("window") > 0 ? Architecture::kPhi3
                                                                                 : Architecture::kLlama;
}

namespace {

/// Value of an option of a layer, for comparison and messages.
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

}  // namespace

void Decoder::require_uniform(Architecture architecture) const {
  const char* name = architecture == Architecture::kPhi3 ? kPhi3Name : kLlamaName;
  const auto refuse = [&](const std::string& what) {
    fail_config(fmt::format("model decoder: {} has no such model: {}; --own-names exports the weights alone",
                            name, what));
  };
  for (const PatternLayer& layer : layers_) {
    if (layer.skipped()) refuse(fmt::format("'block' skips layer {}", layer.number()));
    if (layer.kind() != (layer.number() % 2 == 0 ? Kind::kAttention : Kind::kFfn))
      refuse(fmt::format("layer {} of 'pattern' is {}; expected * and - in turns", layer.number(),
                         layer.letter()));
  }
  if (layers_.size() % 2 != 0) refuse("the last layer of 'pattern' is *; expected * and - in turns");
  if (options_.choice("position", kPositions) == Position::kLearned)
    refuse("'position' is learned; expected rope");
  const auto require = [&](const PatternLayer& layer, std::string_view option, std::string_view wanted) {
    if (const std::string found = value_text(layer, option); found != wanted)
      refuse(fmt::format("'{}' of layer {} is {}; expected {}", option, layer.number(), found, wanted));
  };
  const bool phi3 = architecture == Architecture::kPhi3;
  const PatternLayer &attention = layers_[0], &ffn = layers_[1];
  require(attention, "norm", "rms");
  require(attention, "position", "rope");
  require(attention, "qk_norm", "false");
  if (!phi3) require(attention, "window", "0");
  if (phi3 || attention.has_bias("qkv") != attention.has_bias("out")) {
    const bool both = !phi3 && attention.has_bias("qkv");
    require(attention, "bias", both ? "[qkv, out]" : "[]");
  }
  if (phi3) require(ffn, "bias", "[]");
  if (const std::string kind = value_text(ffn, "ffn"); kind != "swiglu" && kind != "geglu")
    refuse(fmt::format("'ffn' of layer {} is {}; expected swiglu or geglu", ffn.number(), kind));
  for (const PatternLayer& layer : layers_) {
    const PatternLayer& first = layer.is_attention() ? attention : ffn;
    const auto same = [&](std::string_view option) { require(layer, option, value_text(first, option)); };
    require(layer, "norm", "rms");
    require(layer, "eps", value_text(attention, "eps"));
    same("bias");
    for (const std::string_view option : kAttentionOptions)
      if (layer.is_attention()) same(option);
    for (const std::string_view option : kFfnOptions)
      if (!layer.is_attention()) same(option);
  }
  // The last norm has the model's settings.
  if (options_.choice("norm", kNorms) != Norm::kRms) refuse("'norm' before the head is layer; expected rms");
  if (options_.real("eps") != attention.real("eps"))
    refuse(fmt::format("'eps' before the head is {}, and that of layer 0 is {}; expected one",
                       options_.real("eps"), attention.real("eps")));
}

std::string Decoder::config_json(Architecture architecture, const DataInfo& data) const {
  const PatternLayer &attention = layers_[0], &ffn = layers_[1];
  const bool phi3 = architecture == Architecture::kPhi3;
  // Readers that check types require 1.0 for a real.
  const auto real = [](double number) {
    const std::string digits = fmt::format("{}", number);
    return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
  };
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  std::string text = fmt::format("{{\n  \"architectures\": [\"{}\"],\n  \"model_type\": \"{}\",\n",
                                 phi3 ? kPhi3Name : kLlamaName, phi3 ? "phi3" : "llama");
  const auto member = [&](std::string_view key, const auto& json) {
    text += fmt::format("  \"{}\": {},\n", key, json);
  };
  const std::int64_t context = options_.has("context") ? options_.integer("context") : time_of(data);
  member("vocab_size", vocabulary_rows(options_, data));
  member("max_position_embeddings", context);
  if (phi3) member("original_max_position_embeddings", context);
  member("hidden_size", options_.integer("width"));
  member("intermediate_size", ffn.integer("hidden"));
  member("num_hidden_layers", layers_.size() / 2);
  member("num_attention_heads", attention.heads());
  member("num_key_value_heads", attention.kv_heads());
  member("head_dim", attention.head_width());
  member("hidden_act", ffn.choice("ffn", kFfns) == Ffn::kSwiglu ? "\"silu\"" : "\"gelu_pytorch_tanh\"");
  member("rms_norm_eps", real(attention.real("eps")));
  member("rope_theta", real(attention.real("rope_base")));
  if (phi3) {
    const std::int64_t window = attention.integer("window");
    member("sliding_window", window > 0 ? fmt::format("{}", window) : "null");
  } else {
    member("attention_bias", truth(attention.has_bias("qkv")));
    member("mlp_bias", truth(ffn.has_bias("ffn")));
  }
  member("attention_dropout", real(0));
  member("initializer_range", real(options_.real("init_scale")));
  member("tie_word_embeddings", truth(options_.boolean("tied")));
  member("bos_token_id", "null");
  member("pad_token_id", "null");
  return text + "  \"eos_token_id\": null\n}\n";
}

NamePlan Decoder::name_plan(const DataInfo& data) {
  const Architecture architecture = this->architecture();
  const bool phi3 = architecture == Architecture::kPhi3;
  require_uniform(architecture);
  NamePlan plan;
  plan.files.push_back({"config.json", config_json(architecture, data)});
  plan.derived = {"model.layers.*.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"};
  if (options_.boolean("tied")) plan.derived.emplace_back("lm_head.weight");
  const auto rule = [&](const std::string& from, std::initializer_list<const char*> parts,
                        const std::string& to) {
    NameRule& added = plan.rules.emplace_back();
    for (const char* part : parts) added.here.push_back(from + part);
    added.there = {to};
  };
  for (std::size_t n = 0; n < layers_.size() / 2; ++n) {
    const std::string attention = fmt::format("model.layers.{}.", 2 * n),
                      ffn = fmt::format("model.layers.{}.", 2 * n + 1),
                      there = fmt::format("model.layers.{}.", n);
    rule(attention, {"norm.weight"}, there + "input_layernorm.weight");
    rule(ffn, {"norm.weight"}, there + "post_attention_layernorm.weight");
    if (phi3) {
      rule(attention + "self_attn.", {"q_proj.weight", "k_proj.weight", "v_proj.weight"},
           there + "self_attn.qkv_proj.weight");
      rule(ffn + "mlp.", {"gate_proj.weight", "up_proj.weight"}, there + "mlp.gate_up_proj.weight");
    }
    const auto map = [&](const std::string& from, const std::string& name, bool bias) {
      rule(from, {(name + ".weight").c_str()}, there + name + ".weight");
      if (bias) rule(from, {(name + ".bias").c_str()}, there + name + ".bias");
    };
    const bool qkv = layers_[2 * n].has_bias("qkv"), out = layers_[2 * n].has_bias("out"),
               inside = layers_[2 * n + 1].has_bias("ffn");
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

}  // namespace tenon::decoder
