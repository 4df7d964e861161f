// Defaults are those of transformers' LlamaConfig and Phi3Config, which leave out of config.json what equals
// them.
#include "importer.hpp"

#include <tenon/sdk/imported_settings.hpp>

#include <fmt/format.h>

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

}  // namespace

ModelDescription Importer::model(std::string_view architecture, const Value& table) {
  const bool phi3 = architecture == kPhi3Name;
  const ImportedSettings settings("importer decoder", table);
  settings.require_absent("quantization_config", "weights that are not quantized");
  for (const char* key : {"attention_dropout", "resid_pdrop", "embd_pdrop"})
    settings.require_real(key, 0, "0: the model has no dropout");
  const std::int64_t width = settings.count("hidden_size"), heads = settings.count("num_attention_heads");

  ModelDescription description;
  const auto set = [&](const char* key, auto value) {
    description.model.set(key, Value(std::move(value)), {});
  };
  set("type", std::string("decoder"));
  set("pattern", std::string("*-"));
  set("repeat", settings.count("num_hidden_layers"));
  set("width", width);
  set("heads", heads);
  set("kv_heads", settings.count_or("num_key_value_heads", heads));
  if (settings.has("head_dim") && (width % heads != 0 || settings.count("head_dim") != width / heads))
    set("head_width", settings.count("head_dim"));
  set("hidden", settings.count("intermediate_size"));
  set("ffn", ffn_of(settings));
  set("eps", settings.real_or("rms_norm_eps", phi3 ? 1e-5 : 1e-6));
  set("rope_base", rope_base(settings));
  if (phi3) {
    set("export_as", std::string(kPhi3Name));
    if (settings.has("sliding_window")) set("window", settings.count("sliding_window"));
  } else {
    Value::Array bias;
    const auto add = [&](const char* part) { bias.emplace_back(std::string(part)); };
    if (settings.truth_or("attention_bias", false)) add("qkv"), add("out");
    if (settings.truth_or("mlp_bias", false)) add("ffn");
    set("bias", std::move(bias));
  }
  set("tied", settings.truth_or("tie_word_embeddings", false));
  const std::int64_t vocabulary = settings.count("vocab_size");
  set("vocabulary", vocabulary);
  set("context", settings.count("max_position_embeddings"));
  set("init_scale", settings.real_or("initializer_range", 0.02));
  description.attributes = {{"vocabulary", vocabulary}};
  return description;
}

}  // namespace tenon::decoder
