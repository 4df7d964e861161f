// Defaults are those of transformers' GPTNeoConfig, which leaves out of config.json what equals them.
#include "importer.hpp"

#include <tenon/sdk/imported_settings.hpp>

#include <utility>

namespace tenon::gpt_neo {
namespace {

constexpr const char* kTypesForm =
    "lists [kinds, repetitions] of \"global\" and \"local\", one kind per layer";

/// Kinds of attention, the shortest list that repeats to that of all layers.
Value::Array attention_kinds(const ImportedSettings& settings, std::int64_t layers) {
  const auto refuse = [&]() { settings.refuse("attention_types", kTypesForm); };
  std::vector<std::string> kinds;
  const Value& types = settings.value("attention_types", kTypesForm);
  if (!types.is_array()) refuse();
  for (const Value& entry : types.array()) {
    if (!entry.is_array() || entry.array().size() != 2 || !entry.array()[0].is_array()) refuse();
    const Value& times = entry.array()[1];
    const Value::Array& names = entry.array()[0].array();
    for (const Value& name : names)
      if (!name.is_text() || (name.text() != "global" && name.text() != "local")) refuse();
    const auto length = static_cast<std::int64_t>(names.size());
    const std::int64_t left = layers - static_cast<std::int64_t>(kinds.size());
    if (times.type() != Value::Type::kInteger || length == 0 || times.integer() < 0 ||
        times.integer() > left / length)
      refuse();
    for (std::int64_t i = 0; i < times.integer(); ++i)
      for (const Value& name : names) kinds.push_back(name.text());
  }
  if (static_cast<std::int64_t>(kinds.size()) != layers) refuse();
  std::size_t period = 1;
  const auto repeats = [&] {
    for (std::size_t i = period; i < kinds.size(); ++i)
      if (kinds[i] != kinds[i - period]) return false;
    return true;
  };
  while (!repeats()) ++period;
  Value::Array list;
  for (std::size_t i = 0; i < period; ++i) list.emplace_back(kinds[i]);
  return list;
}

}  // namespace

ModelDescription Importer::model(std::string_view, const Value& table) {
  const ImportedSettings settings("importer gpt_neo", table);
  settings.require_absent("quantization_config", "weights that are not quantized");
  settings.require_real("attention_dropout", 0, "0: attention has no dropout");
  const double dropout = settings.real_or("resid_dropout", 0);
  settings.require_real("embed_dropout", dropout, "the probability of resid_dropout");
  if (!settings.truth_or("tie_word_embeddings", true))
    settings.refuse("tie_word_embeddings", "true: the head is the embedding");
  const std::string activation = settings.text_or("activation_function", "gelu_new");
  const bool tanh = activation == "gelu_new" || activation == "gelu_pytorch_tanh";
  if (!tanh && activation != "gelu") settings.refuse("activation_function", "\"gelu_new\" and \"gelu\"");
  const std::int64_t width = settings.count("hidden_size"), layers = settings.count("num_layers");
  if (layers > 10000) settings.refuse("num_layers", "at most 10000 layers");

  ModelDescription description;
  const auto set = [&](const char* key, auto value) {
    description.model.set(key, Value(std::move(value)), {});
  };
  set("type", std::string("gpt_neo"));
  set("layers", layers);
  set("width", width);
  set("heads", settings.count("num_heads"));
  set("attention", attention_kinds(settings, layers));
  set("window", settings.count_or("window_size", 256));
  set("mlp_ratio",
      static_cast<double>(settings.count_or("intermediate_size", 4 * width)) / static_cast<double>(width));
  set("activation", std::string(tanh ? "gelu_tanh" : "gelu_exact"));
  set("scale_logits", false);
  set("dropout", dropout);
  set("eps", settings.real_or("layer_norm_epsilon", 1e-5));
  const std::int64_t vocabulary = settings.count("vocab_size");
  set("vocabulary", vocabulary);
  set("context", settings.count("max_position_embeddings"));
  set("init_scale", settings.real_or("initializer_range", 0.02));
  description.attributes = {{"vocabulary", vocabulary}};
  return description;
}

}  // namespace tenon::gpt_neo
