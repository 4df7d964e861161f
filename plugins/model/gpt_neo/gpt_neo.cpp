// Model `gpt_neo`: writes the graph, block by block, and checks that the data is text.
#include "gpt_neo.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::gpt_neo {
namespace {

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

std::int64_t attribute(const DataInfo& data, std::string_view name) {
  for (const DataAttribute& attribute : data.attributes) {
    if (attribute.name == name) return attribute.value;
  }
  return 0;
}

/// Appends nodes; each call returns the node's name, which is also its value's.
class Blocks {
 public:
  Blocks(const Options& options, std::string stream) : options_(options), stream_(std::move(stream)) {}

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
  Blocks blocks(options_, "");
  const std::string words =
      blocks.add("transformer.wte", "embedding", {"tokens"},
                 {{"rows", vocabulary}, {"width", options_.integer("width")}, {"init_scale", init_scale}});
  const std::string placed =
      blocks.add("transformer.wpe", "positions", {words}, {{"context", context}, {"init_scale", init_scale}});
  blocks.advance(blocks.dropout("transformer.drop", placed));
  const auto kinds = options_.texts("attention");
  for (std::int64_t i = 0; i < options_.integer("layers"); ++i) {
    blocks.block(fmt::format("transformer.h.{}", i),
                 kinds[static_cast<std::size_t>(i) % kinds.size()] == "local");
  }
  const std::string last = blocks.layer_norm("transformer.ln_f", blocks.stream());
  blocks.add("lm_head", "head_cross_entropy", {last, "targets"},
             {{"vocabulary", vocabulary},
              {"weight", std::string("transformer.wte.weight")},
              {"init_scale", init_scale},
              {"chunk_rows", options_.integer("chunk_rows")}});
  return blocks.finish();
}

}  // namespace tenon::gpt_neo
