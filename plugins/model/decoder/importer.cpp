// Defaults are those of transformers' LlamaConfig, Phi3Config, NemotronHConfig and Mamba2Config, which may
// leave out of config.json what equals them.
#include "importer.hpp"

#include <tenon/sdk/imported_settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tenon::decoder {
namespace {

/// Base of the angles. Versions before 5 keep it beside `rope_scaling`, later ones in `rope_parameters`.
double rope_base(const ImportedSettings& settings) {
  double base = settings.real_or("rope_theta", 10000);
  settings.require_real("partial_rotary_factor", 1, "1: all elements of a head are rotated");
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!settings.has(key)) continue;
    const ImportedSettings rope = settings.inner(key);
    for (const char* type : {"type", "rope_type"})
      if (rope.text_or(type, "default") != "default")
        rope.refuse(type, "\"default\": rotary positions without scaling");
    rope.require_real("partial_rotary_factor", 1, "1: all elements of a head are rotated");
    base = rope.real_or("rope_theta", base);
  }
  return base;
}

std::string ffn_of(const ImportedSettings& settings) {
  const std::string act = settings.text_or("hidden_act", "silu");
  if (act == "silu" || act == "swish") return "swiglu";
  if (act == "gelu_pytorch_tanh" || act == "gelu_new") return "geglu";
  settings.refuse("hidden_act", "\"silu\" and \"gelu_pytorch_tanh\"");
}

/// The table [model] as it grows.
class ModelTable {
 public:
  ModelTable() { set("type", std::string("decoder")); }
  template <typename Setting>
  void set(const char* key, Setting value) {
    description_.model.set(key, Value(std::move(value)), {});
  }
  void set_bias(const ImportedSettings& settings) {
    Value::Array bias;
    const auto add = [&](const char* part) { bias.emplace_back(std::string(part)); };
    if (settings.truth_or("attention_bias", false)) add("qkv"), add("out");
    if (settings.truth_or("mlp_bias", false)) add("ffn");
    set("bias", std::move(bias));
  }
  ModelDescription finish(std::int64_t vocabulary, std::int64_t context) {
    set("vocabulary", vocabulary);
    set("context", context);
    description_.attributes = {{"vocabulary", vocabulary}};
    return std::move(description_);
  }

 private:
  ModelDescription description_;
};

ModelDescription transformer(const ImportedSettings& settings, bool phi3) {
  const std::int64_t width = settings.count("hidden_size"), heads = settings.count("num_attention_heads");
  ModelTable model;
  model.set("pattern", std::string("*-"));
  model.set("repeat", settings.count("num_hidden_layers"));
  model.set("width", width);
  model.set("heads", heads);
  model.set("kv_heads", settings.count_or("num_key_value_heads", heads));
  if (settings.has("head_dim") && (width % heads != 0 || settings.count("head_dim") != width / heads))
    model.set("head_width", settings.count("head_dim"));
  model.set("hidden", settings.count("intermediate_size"));
  model.set("ffn", ffn_of(settings));
  model.set("eps", settings.real_or("rms_norm_eps", phi3 ? 1e-5 : 1e-6));
  model.set("rope_base", rope_base(settings));
  if (phi3) {
    model.set("export_as", std::string(kPhi3Name));
    if (settings.has("sliding_window")) model.set("window", settings.count("sliding_window"));
  } else {
    model.set_bias(settings);
  }
  model.set("tied", settings.truth_or("tie_word_embeddings", false));
  model.set("init_scale", settings.real_or("initializer_range", 0.02));
  return model.finish(settings.count("vocab_size"), settings.count("max_position_embeddings"));
}

// Nemotron-H and Mamba-2.

constexpr std::int64_t kNoLongestSample = 8192;  ///< context of Mamba-2, whose settings state none

void require_truth(const ImportedSettings& settings, const char* key, bool value, const char* supported) {
  if (settings.truth_or(key, value) != value) settings.refuse(key, supported);
}

/// What both have around a Mamba-2 layer.
void require_plain_mamba(const ImportedSettings& settings, const char* activation) {
  require_truth(settings, "use_bias", false, "false: in_proj and out_proj have no bias");
  require_truth(settings, "use_conv_bias", true, "true: the convolution has a bias");
  if (const std::string act = settings.text_or(activation, "silu"); act != "silu" && act != "swish")
    settings.refuse(activation, "\"silu\"");
}

std::string nemotron_pattern(const ImportedSettings& settings) {
  // Up to version 4 a text of letters, later a list of kinds, with other names at first.
  if (!settings.has("layers_block_type")) {
    const std::string pattern = settings.text_or("hybrid_override_pattern", "");
    if (pattern.empty()) settings.value("layers_block_type", "a list of the kinds of all layers");
    if (pattern.find_first_not_of("M*-") != std::string::npos)
      settings.refuse("hybrid_override_pattern", "the letters M, * and -");
    return pattern;
  }
  constexpr std::pair<const char*, char> kKinds[] = {
      {"linear_attention", 'M'}, {"mamba", 'M'}, {"full_attention", '*'}, {"attention", '*'}, {"mlp", '-'}};
  const char* supported = "lists of \"linear_attention\", \"full_attention\" and \"mlp\"";
  const Value& list = settings.value("layers_block_type", supported);
  if (!list.is_array()) settings.refuse("layers_block_type", supported);
  std::string pattern;
  for (const Value& item : list.array()) {
    const auto found = std::ranges::find_if(
        kKinds, [&](const auto& kind) { return item.is_text() && item.text() == kind.first; });
    if (found == std::end(kKinds)) settings.refuse("layers_block_type", supported);
    pattern += found->second;
  }
  return pattern;
}

std::string nemotron_ffn(const ImportedSettings& settings) {
  const std::string act = settings.text_or("mlp_hidden_act", "relu2");
  if (act == "relu2") return "squared_relu";
  if (act == "gelu_pytorch_tanh" || act == "gelu_new") return "gelu";
  settings.refuse("mlp_hidden_act", "\"relu2\" and \"gelu_pytorch_tanh\"");
}

ModelDescription nemotron_h(const ImportedSettings& settings) {
  require_plain_mamba(settings, "mamba_hidden_act");
  require_truth(settings, "mamba_proj_bias", false, "false: in_proj and out_proj have no bias");
  require_truth(settings, "tie_word_embeddings", false, "false: NemotronHForCausalLM does not tie them");
  settings.require_real("num_nextn_predict_layers", 0, "0: one head");
  settings.require_absent("sliding_window", "attention to all earlier positions");
  for (const auto& [old_name, name] : {std::pair("mamba_n_groups", "n_groups"),
                                       {"mamba_d_conv", "conv_kernel"},
                                       {"mamba_dt_min", "time_step_min"},
                                       {"mamba_conv_bias", "use_conv_bias"},
                                       {"mamba_chunk_size", "chunk_size"}})
    settings.require_absent(old_name, fmt::format("the setting under its later name, '{}'", name));
  ModelTable model;
  model.set("pattern", nemotron_pattern(settings));
  model.set("width", settings.count_or("hidden_size", 4096));
  model.set("position", std::string("none"));
  model.set("heads", settings.count_or("num_attention_heads", 32));
  model.set("kv_heads", settings.count_or("num_key_value_heads", 8));
  model.set("head_width", settings.count_or("head_dim", settings.count_or("attention_head_dim", 128)));
  model.set("hidden", settings.count_or("intermediate_size", 21504));
  model.set("ffn", nemotron_ffn(settings));
  model.set_bias(settings);
  model.set("mamba_heads", settings.count_or("mamba_num_heads", 128));
  model.set("mamba_head_width", settings.count_or("mamba_head_dim", 64));
  model.set("mamba_state", settings.count_or("ssm_state_size", 128));
  model.set("mamba_groups", settings.count_or("n_groups", 8));
  model.set("mamba_conv", settings.count_or("conv_kernel", 4));
  model.set("mamba_chunk", settings.count_or("chunk_size", 128));
  // Of whole sequences transformers bounds time steps by time_step_min, and does not read time_step_limit.
  const double least = settings.real_or("time_step_min", 0.001);
  if (!(least >= 0)) settings.refuse("time_step_min", "numbers from 0");
  model.set("mamba_dt_limits", Value::Array{Value(least), Value(0.0)});
  model.set("eps", settings.real_or("layer_norm_epsilon", 1e-5));
  model.set("init_scale", settings.real_or("initializer_range", 0.02));
  model.set("export_as", std::string(kNemotronHName));
  return model.finish(settings.count_or("vocab_size", 131072),
                      settings.count_or("max_position_embeddings", 4096));
}

/// Bounds of time steps, 0 for none.
Value::Array time_step_limit(const ImportedSettings& settings) {
  if (!settings.has("time_step_limit")) return {Value(0.0), Value(0.0)};
  const char* supported = "two numbers from 0, the second of which may be Infinity";
  const Value& list = settings.value("time_step_limit", supported);
  Value::Array limits;
  for (const Value& item : list.is_array() ? list.array() : Value::Array()) {
    const Value* number = item.is_table() ? item.find("__float__") : nullptr;
    if (number != nullptr && number->is_text() && number->text() == "Infinity" && limits.size() == 1)
      limits.emplace_back(0.0);
    else if ((item.type() == Value::Type::kInteger || item.type() == Value::Type::kReal) &&
             item.real() >= 0 && (limits.empty() || item.real() > 0))
      limits.emplace_back(item.real());
  }
  if (limits.size() != 2 || list.array().size() != 2) settings.refuse("time_step_limit", supported);
  return limits;
}

ModelDescription mamba2(const ImportedSettings& settings) {
  require_plain_mamba(settings, "hidden_act");
  const std::int64_t width = settings.count_or("hidden_size", 4096);
  const std::int64_t heads = settings.count_or("num_heads", 128),
                     head_width = settings.count_or("head_dim", 64);
  if (settings.count_or("expand", 2) * width != heads * head_width) {
    fail_config(
        fmt::format("importer decoder: 'expand' {} of 'hidden_size' {} is not 'num_heads' {} of "
                    "'head_dim' {}; importer decoder supports heads that make up the whole width",
                    settings.count_or("expand", 2), width, heads, head_width));
  }
  ModelTable model;
  model.set("pattern", std::string("M"));
  model.set("repeat", settings.count_or("num_hidden_layers", 64));
  model.set("width", width);
  model.set("position", std::string("none"));
  model.set("mamba_heads", heads);
  model.set("mamba_head_width", head_width);
  model.set("mamba_state", settings.count_or("state_size", 128));
  model.set("mamba_groups", settings.count_or("n_groups", 8));
  model.set("mamba_conv", settings.count_or("conv_kernel", 4));
  model.set("mamba_chunk", settings.count_or("chunk_size", 256));
  model.set("mamba_dt_limits", time_step_limit(settings));
  model.set("eps", settings.real_or("layer_norm_epsilon", 1e-5));
  model.set("tied", settings.truth_or("tie_word_embeddings", false));
  model.set("init_scale", settings.real_or("initializer_range", 0.1));
  model.set("export_as", std::string(kMamba2Name));
  return model.finish(settings.count_or("vocab_size", 32768),
                      settings.count_or("max_position_embeddings", kNoLongestSample));
}

}  // namespace

ModelDescription Importer::model(std::string_view architecture, const Value& table) {
  const ImportedSettings settings("importer decoder", table);
  settings.require_absent("quantization_config", "weights that are not quantized");
  for (const char* key : {"attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop"})
    settings.require_real(key, 0, "0: the model has no dropout");
  if (architecture == kNemotronHName) return nemotron_h(settings);
  if (architecture == kMamba2Name) return mamba2(settings);
  return transformer(settings, architecture == kPhi3Name);
}

}  // namespace tenon::decoder
