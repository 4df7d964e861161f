// Names in transformers: "gelu_new" is the tanh form, an attention layer is "global" or "local", and
// attention_types is a list of [kinds, repetitions]. Its GPT-Neo never divides attention logits, so a model
// that does is exported with the factor in the queries.
#include "outside.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::gpt_neo {
namespace {

const NodeSpec& node(const GraphSpec& graph, std::string_view name) {
  return *std::find_if(graph.nodes.begin(), graph.nodes.end(),
                       [&](const NodeSpec& n) { return n.name == name; });
}

template <typename T>
T value(const NodeSpec& node, std::string_view option) {
  return std::get<T>(std::find_if(node.options.begin(), node.options.end(), [&](const NamedOption& o) {
                       return o.name == option;
                     })->value);
}

}  // namespace

void* Outside::query(std::string_view interface_id) {
  if (interface_id == ModelExport::kId) return static_cast<ModelExport*>(this);
  return interface_id == LanguageModel::kId ? static_cast<LanguageModel*>(this) : nullptr;
}

std::string Outside::config_json(const GraphSpec& graph) const {
  std::vector<const char*> kinds;
  for (const NodeSpec& n : graph.nodes) {
    if (n.type != "attention") continue;
    kinds.push_back(value<std::int64_t>(n, "window") == 0 ? "\"global\"" : "\"local\"");
  }
  // Readers that check types require 0.0 for a real.
  const auto real = [](double number) {
    const std::string digits = fmt::format("{}", number);
    return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
  };
  const std::string dropout = real(options_.real("dropout"));
  std::string text = "{\n  \"architectures\": [\"GPTNeoForCausalLM\"],\n  \"model_type\": \"gpt_neo\",\n";
  const auto member = [&](std::string_view key, const auto& json) {
    text += fmt::format("  \"{}\": {},\n", key, json);
  };
  member("vocab_size", value<std::int64_t>(node(graph, "lm_head"), "vocabulary"));
  member("max_position_embeddings", value<std::int64_t>(node(graph, "transformer.wpe"), "context"));
  member("hidden_size", options_.integer("width"));
  member("num_layers", options_.integer("layers"));
  member("num_heads", options_.integer("heads"));
  member("attention_types", fmt::format("[[[{}], 1]]", fmt::join(kinds, ", ")));
  member("window_size", options_.integer("window"));
  member("intermediate_size", value<std::int64_t>(node(graph, "transformer.h.0.mlp.c_fc"), "features"));
  member("activation_function",
         options_.choice("activation", GptNeo::kActivations) == GptNeo::Activation::kGeluTanh ? "\"gelu_new\""
                                                                                              : "\"gelu\"");
  member("embed_dropout", dropout);
  member("resid_dropout", dropout);
  member("attention_dropout", real(0));
  member("layer_norm_epsilon", real(options_.real("eps")));
  member("initializer_range", real(options_.real("init_scale")));
  member("tie_word_embeddings", "true");
  member("bos_token_id", "null");
  return text + "  \"eos_token_id\": null\n}\n";
}

ExportPlan Outside::export_plan(const DataInfo& data) {
  const GraphSpec graph = model_.build(data);
  ExportPlan plan;
  plan.files.push_back({"config.json", config_json(graph)});
  if (!options_.boolean("scale_logits")) return plan;
  const auto head =
      static_cast<double>(options_.integer("width")) / static_cast<double>(options_.integer("heads"));
  for (std::int64_t i = 0; i < options_.integer("layers"); ++i) {
    const std::string name = fmt::format("transformer.h.{}.attn.attention.q_proj.weight", i);
    plan.weights.push_back({name, name, 1 / std::sqrt(head)});
  }
  return plan;
}

LanguageGraph Outside::language_graph(const DataInfo& data) {
  LanguageGraph result{model_.build(data), "lm_head"};
  NodeSpec& head = result.graph.nodes.back();
  const NamedOption features{"features", value<std::int64_t>(head, "vocabulary")};
  const NamedOption weight{"weight", value<std::string>(head, "weight")};
  const NamedOption init{"init_scale", value<double>(head, "init_scale")};
  head = {"lm_head",
          "linear",
          {head.inputs[0]},
          {features, {"bias", false}, weight, init, {"module", std::string("head")}}};
  return result;
}

}  // namespace tenon::gpt_neo
