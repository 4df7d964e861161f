// Model `gpt_neo` (Black et al. 2021; the configuration of EleutherAI/gpt-neo): pre-LayerNorm blocks,
// alternating global and local attention, logits of attention not divided by sqrt(d_head), learned positions,
// head tied to the embedding. Parameter names are those of Hugging Face transformers. Data fields: "tokens"
// and "targets", i32 [time].
#include "importer.hpp"

#include <fmt/format.h>
#include <tenon/error.hpp>
#include <tenon/model.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/outside_training.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tenon::gpt_neo {

/// GPT-Neo for other programs: the names of its weights and settings in transformers' GPTNeoForCausalLM
/// ("tenon.model.names/2"), and the graph that ends in logits ("tenon.model.language/1"). Both are derived
/// from the graph that the model builds, so they always match what is trained.
class Outside final : public ModelNames, public LanguageModel {
 public:
  Outside(Model& model, const Options& options) : model_(model), options_(options) {}

  NamePlan name_plan(const DataInfo& data) override;
  LanguageGraph language_graph(const DataInfo& data) override;
  void* query(std::string_view interface_id);

 private:
  std::string config_json(const GraphSpec& graph) const;

  Model& model_;
  const Options& options_;  // outlives the model
};

class GptNeo final : public Model {
 public:
  enum class Activation : std::uint8_t { kGeluTanh, kGeluExact };
  static constexpr auto kActivations = option::choice<Activation>(
      {{"gelu_tanh", Activation::kGeluTanh}, {"gelu_exact", Activation::kGeluExact}});
  enum class Objective : std::uint8_t { kTokens, kPolicy };
  static constexpr auto kObjectives =
      option::choice<Objective>({{"tokens", Objective::kTokens}, {"policy", Objective::kPolicy}});
  static constexpr const char* kAttentions[] = {"global", "local", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integer("layers", nullptr).mandatory().between(1, 10000).doc_text("transformer blocks"),
      option::integer("width", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("width of the residual stream"),
      option::integer("heads", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("number of attention heads; must divide width"),
      option::integer("context", nullptr)
          .between(1, 2147483647)
          .in_unit("tokens")
          .doc_text("positions with a learned row; absent: the data's"),
      option::integer("vocabulary", nullptr)
          .between(1, 2147483647)
          .doc_text("rows of the embedding; absent: the data's"),
      option::texts("attention", "[\"global\", \"local\"]")
          .one_of(kAttentions)
          .doc_text("kind of attention per layer, repeated to the number of layers"),
      option::integer("window", "256")
          .between(1, 2147483647)
          .in_unit("tokens")
          .doc_text("keys that local attention sees"),
      option::real("mlp_ratio", "4")
          .between(0.001, 10000)
          .doc_text("width of the MLP over the width of the model"),
      option::text("activation", "\"gelu_tanh\"").one_of(kActivations).doc_text("activation of the MLP"),
      option::boolean("scale_logits", "false")
          .doc_text("divide attention logits by sqrt(d_head); GPT-Neo does not"),
      option::real("dropout", "0")
          .between(0, 0.999)
          .doc_text(
              "probability after the embeddings and on both branches of a block; not on attention weights"),
      option::real("eps", "1e-5").at_least(0).doc_text("added to the variance by layer norms"),
      option::real("init_scale", "0.02").at_least(0).doc_text("standard deviation of all initial matrices"),
      option::integer("chunk_rows", "0")
          .between(0, 2147483647)
          .in_unit("rows")
          .doc_text("rows of logits that the head holds at a time; 0: chosen by the head"),
      option::text("objective", "\"tokens\"")
          .one_of(kObjectives)
          .doc_text("tokens: cross-entropy of the targets; policy: the clipped objective of targets that the "
                    "model drew, for data with the fields drawn and advantages"),
      option::real("clip", "0.2").between(0, 1000).doc_text("of the layer policy_loss"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "gpt_neo", .summary = "GPT-Neo language model", .options = kOptions};

  explicit GptNeo(const Options& options);
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return outside_.query(interface_id); }

 private:
  const Options& options_;  // outlives the model
  Outside outside_;
};

namespace {

// Model `gpt_neo`: writes the graph, block by block, and checks that the data is text.

/// Returns a field of tokens; throws an error that lists the fields that there are.
const DataField& token_field(const DataInfo& data, std::string_view name) {
  std::vector<std::string_view> known;
  for (const DataField& field : data.fields) {
    if (field.name == name) {
      if (field.dtype == DType::kI32 && field.shape.rank() == 1) return field;
      fail_config(fmt::format("model gpt_neo: data field '{}' must be i32 [time], found {} {}", name,
                              dtype_name(field.dtype), field.shape.text()));
    }
    known.push_back(field.name);
  }
  fail_config(
      fmt::format("model gpt_neo needs a data field '{}', the data offers: {}; choose a [data] type for "
                  "language models such as 'text'",
                  name, fmt::join(known, ", ")));
}

/// Throws Error(kConfig) for data that is not of the model.
void require_drawn(const DataInfo& data) {
  for (const char* name : {"drawn", "advantages"}) {
    const auto named = [&](const DataField& field) { return field.name == name; };
    if (std::none_of(data.fields.begin(), data.fields.end(), named))
      fail_config(
          fmt::format("model gpt_neo: objective = \"policy\" needs a data field '{}'; choose a [data] "
                      "type whose samples the model draws, such as 'rollouts'",
                      name));
  }
}

/// Whether the data has the field; where it has, it is as long as the tokens.
bool has_numbers(const DataInfo& data, std::string_view name, std::int64_t time) {
  const auto named = [&](const DataField& field) { return field.name == name; };
  if (std::none_of(data.fields.begin(), data.fields.end(), named)) return false;
  if (token_field(data, name).shape[0] == time) return true;
  fail_config(fmt::format("model gpt_neo: data fields 'tokens' and '{}' must be equally long", name));
}

std::int64_t attribute(const DataInfo& data, std::string_view name) {
  for (const DataAttribute& attribute : data.attributes) {
    if (attribute.name == name) return attribute.value;
  }
  return 0;
}

/// Appends nodes; each call returns the node's name, which is also its value's.
class Blocks {
 public:
  /// `documents`: the data has a field of them.
  Blocks(const Options& options, bool documents) : options_(options), documents_(documents) {}

  std::string add(std::string name, std::string type, std::vector<std::string> inputs,
                  std::vector<NamedOption> options) {
    graph_.nodes.push_back({name, std::move(type), std::move(inputs), std::move(options)});
    return name;
  }

  std::string linear(const std::string& name, const std::string& input, std::int64_t features, bool bias) {
    return add(name, "linear", {input},
               {{"features", features}, {"bias", bias}, {"init_scale", options_.real("init_scale")}});
  }

  std::string layer_norm(const std::string& name, const std::string& input) {
    return add(name, "layer_norm", {input}, {{"eps", options_.real("eps")}});
  }

  /// The value itself when the model has no dropout: then the graph has no such nodes.
  std::string dropout(const std::string& name, const std::string& input) {
    if (options_.real("dropout") == 0) return input;
    return add(name, "dropout", {input}, {{"p", options_.real("dropout")}});
  }

  void block(const std::string& name, bool local) {
    const std::int64_t width = options_.integer("width");
    const std::string attention = name + ".attn.attention";
    const std::string normal = layer_norm(name + ".ln_1", stream_);
    std::vector<std::string> qkv;
    for (const char* part : {".q_proj", ".k_proj", ".v_proj"}) {
      qkv.push_back(linear(attention + part, normal, width, false));
    }
    if (documents_) qkv.emplace_back("documents");
    add(attention, "attention", qkv,
        {{"heads", options_.integer("heads")},
         {"window", local ? options_.integer("window") : std::int64_t{0}},
         {"scaled", options_.boolean("scale_logits")}});
    const std::string projected = linear(attention + ".out_proj", attention, width, true);
    join(name + ".attn_residual", dropout(attention + ".resid_dropout", projected));

    const auto hidden =
        static_cast<std::int64_t>(std::llround(options_.real("mlp_ratio") * static_cast<double>(width)));
    const std::string wide = linear(name + ".mlp.c_fc", layer_norm(name + ".ln_2", stream_), hidden, true);
    const bool tanh = options_.choice("activation", GptNeo::kActivations) == GptNeo::Activation::kGeluTanh;
    const std::string active =
        add(name + ".mlp.act", "gelu", {wide}, {{"approximate", std::string(tanh ? "tanh" : "none")}});
    join(name + ".mlp_residual",
         dropout(name + ".mlp.dropout", linear(name + ".mlp.c_proj", active, width, true)));
  }

  void join(const std::string& name, const std::string& branch) {
    stream_ = add(name, "residual", {stream_, branch}, {});
  }
  void advance(std::string value) { stream_ = std::move(value); }
  const std::string& stream() const { return stream_; }
  GraphSpec finish() { return std::move(graph_); }

 private:
  const Options& options_;
  bool documents_;
  std::string stream_;  // the value that the next block reads and adds to
  GraphSpec graph_;
};

}  // namespace

GptNeo::GptNeo(const Options& options) : options_(options), outside_(*this, options) {
  const std::int64_t width = options.integer("width"), heads = options.integer("heads");
  if (width % heads != 0) {
    fail_config(fmt::format("model gpt_neo: width {} is not a multiple of {} heads", width, heads));
  }
  if (options.texts("attention").empty()) {
    fail_config("model gpt_neo: option 'attention' is empty; name at least one of global, local");
  }
}

GraphSpec GptNeo::build(const DataInfo& data) {
  const std::int64_t time = token_field(data, "tokens").shape[0];
  if (token_field(data, "targets").shape[0] != time) {
    fail_config("model gpt_neo: data fields 'tokens' and 'targets' must be equally long");
  }
  const std::int64_t context = options_.has("context") ? options_.integer("context") : time;
  if (context < time) {
    fail_config(
        fmt::format("model gpt_neo: samples have {} tokens, but option 'context' allows {}", time, context));
  }
  const std::int64_t known = attribute(data, "vocabulary");
  const std::int64_t vocabulary = options_.has("vocabulary") ? options_.integer("vocabulary") : known;
  if (vocabulary < 1 || vocabulary < known) {
    fail_config(fmt::format("model gpt_neo: option 'vocabulary' must cover the data's {} tokens, found {}",
                            known, vocabulary));
  }

  const double init_scale = options_.real("init_scale");
  Blocks blocks(options_, has_numbers(data, "documents", time));
  const std::string words =
      blocks.add("transformer.wte", "embedding", {"tokens"},
                 {{"rows", vocabulary}, {"width", options_.integer("width")}, {"init_scale", init_scale}});
  std::vector<std::string> place{words};
  if (has_numbers(data, "positions", time)) place.emplace_back("positions");
  const std::string placed = blocks.add("transformer.wpe", "positions", std::move(place),
                                        {{"context", context}, {"init_scale", init_scale}});
  blocks.advance(blocks.dropout("transformer.drop", placed));
  const auto kinds = options_.texts("attention");
  for (std::int64_t i = 0; i < options_.integer("layers"); ++i) {
    blocks.block(fmt::format("transformer.h.{}", i),
                 kinds[static_cast<std::size_t>(i) % kinds.size()] == "local");
  }
  const std::string last = blocks.layer_norm("transformer.ln_f", blocks.stream());
  const bool policy = options_.choice("objective", kObjectives) == Objective::kPolicy;
  blocks.add("lm_head", policy ? "head_log_probs" : "head_cross_entropy", {last, "targets"},
             {{"vocabulary", vocabulary},
              {"weight", std::string("transformer.wte.weight")},
              {"init_scale", init_scale},
              {"chunk_rows", options_.integer("chunk_rows")}});
  if (policy) {
    require_drawn(data);
    blocks.add("policy", "policy_loss", {"lm_head", "drawn", "advantages", "targets"},
               {{"clip", options_.real("clip")}});
  }
  return blocks.finish();
}

namespace {

// Names in transformers: "gelu_new" is the tanh form, an attention layer is "global" or "local", and
// attention_types is a list of [kinds, repetitions]. Its GPT-Neo never divides attention logits, so a model
// that does is exported with the factor in the queries.

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
  if (interface_id == ModelNames::kId) return static_cast<ModelNames*>(this);
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

NamePlan Outside::name_plan(const DataInfo& data) {
  const GraphSpec graph = model_.build(data);
  NamePlan plan;
  plan.files.push_back({"config.json", config_json(graph)});
  // Masks that earlier versions stored, and the head, which is the embedding.
  plan.derived = {"transformer.h.*.attn.attention.bias", "transformer.h.*.attn.attention.masked_bias",
                  "lm_head.weight"};
  if (!options_.boolean("scale_logits")) return plan;
  const auto head =
      static_cast<double>(options_.integer("width")) / static_cast<double>(options_.integer("heads"));
  for (std::int64_t i = 0; i < options_.integer("layers"); ++i) {
    const std::string name = fmt::format("transformer.h.{}.attn.attention.q_proj.weight", i);
    plan.rules.push_back({.here = {name}, .there = {name}, .factor = 1 / std::sqrt(head)});
  }
  return plan;
}

// A prompt is one document that begins at position 0, whatever the samples of training are.
LanguageGraph Outside::language_graph(const DataInfo& data) {
  DataInfo prompt = data;
  std::erase_if(prompt.fields, [](const DataField& field) {
    return field.name == "documents" || field.name == "positions";
  });
  LanguageGraph result{model_.build(prompt), "lm_head"};
  if (result.graph.nodes.back().name != "lm_head") result.graph.nodes.pop_back();  // the loss of a policy
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

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.gpt_neo",
                               .version = "0.1.0",
                               .summary = "GPT-Neo language model"},
             tenon::gpt_neo::GptNeo, tenon::gpt_neo::Importer)
