// Reading a decoder's pattern and its [[model.block]] tables, and writing its graph.
#include "decoder.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tenon::decoder {
namespace {

[[noreturn]] void refuse_block(std::int64_t index, const Options& block, const std::string& what) {
  fail_config(fmt::format("model decoder: 'block' {} (at \"{}\") {}", index, block.text("at"), what));
}

Kind kind_of(char letter) {
  return static_cast<Kind>(kLetters.find(letter));
}

}  // namespace

Decoder::Decoder(const Options& options, Host& host) : options_(options), host_(host) {
  read_pattern();
  std::int64_t index = 0;
  for (const Options* block : options.tables("block")) apply_block(index++, *block);
  const auto skipped = [](const PatternLayer& layer) { return layer.skipped(); };
  if (std::all_of(layers_.begin(), layers_.end(), skipped))
    fail_config("model decoder: 'block' skips every layer; expected at least one that stays");
  for (const PatternLayer& layer : layers_) {
    if (!layer.skipped()) layer.check();
  }
  const bool policy = options.choice("objective", kObjectives) == Objective::kPolicy;
  if (policy && !options.tables("distil").empty())
    fail_config("model decoder: objective = \"policy\" has no teacher; remove [model.distil]");
  if (options.choice("rules", kRules) == Rules::kNemotronH) require_nemotron_h(options, layers_);
}

void Decoder::read_pattern() {
  const std::string_view pattern = options_.text("pattern");
  const std::int64_t repeat = options_.integer("repeat");
  if (pattern.empty())
    fail_config(fmt::format("model decoder: 'pattern' has no layer; expected letters such as \"*-\": {}",
                            kLetterMeanings));
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char letter = pattern[at];
    if (kLetters.find(letter) != std::string_view::npos) continue;
    const auto byte = static_cast<unsigned char>(letter);
    fail_config(
        fmt::format("model decoder: 'pattern' has {} at {}; expected {}",
                    byte >= ' ' && byte <= '~' ? fmt::format("'{}'", letter) : fmt::format("byte {}", byte),
                    at, kLetterMeanings));
  }
  const auto letters = static_cast<std::int64_t>(pattern.size());
  if (letters > kMostLayers / repeat) {
    fail_config(
        fmt::format("model decoder: 'pattern' of {} letters, repeated {} times, has more than {} layers",
                    letters, repeat, kMostLayers));
  }
  for (std::int64_t number = 0; number < letters * repeat; ++number)
    layers_.emplace_back(options_, kind_of(pattern[static_cast<std::size_t>(number % letters)]), number);
}

void Decoder::apply_block(std::int64_t index, const Options& block) {
  const std::string_view at = block.text("at");
  const std::size_t colon = std::min(at.find(':'), at.size());
  const std::string_view numbers = at.substr(0, colon), kind = colon < at.size() ? at.substr(colon + 1) : "";
  if (colon < at.size() && std::ranges::count(kKindNames, kind) == 0) {
    refuse_block(index, block,
                 fmt::format("names the kind '{}'; expected {}", kind, fmt::join(kKindNames, ", ")));
  }
  bool matched[std::size(kKindNames)] = {};
  for (PatternLayer& layer : layers_) {
    if (!matches_pattern(numbers, std::to_string(layer.number())) ||
        (!kind.empty() && kind != layer.kind_name()))
      continue;
    layer.add_block(index, block);
    matched[static_cast<std::size_t>(layer.kind())] = true;
  }
  if (std::ranges::count(matched, true) == 0) {
    refuse_block(
        index, block,
        fmt::format("matches no layer; expected a number from 0 to {}, or a pattern of numbers such as * "
                    "or 1?, and then, for layers of one kind, :attention, :ffn or :mamba",
                    layers_.size() - 1));
  }
  for (std::size_t i = 0; i < std::size(kKindNames); ++i) {
    for (const std::string_view name : kKindOptions[i]) {
      if (matched[i] || !block.has(name)) continue;
      refuse_block(index, block,
                   fmt::format("sets '{}', which only layers of kind {} have, and matches none of them", name,
                               kKindNames[i]));
    }
  }
}

// Writing the graph.

namespace {

const DataField* find_field(const DataInfo& data, std::string_view name) {
  const auto found = std::find_if(data.fields.begin(), data.fields.end(),
                                  [&](const DataField& field) { return field.name == name; });
  return found == data.fields.end() ? nullptr : &*found;
}

/// Whether the data has the field, of `time` numbers per sample.
bool has_numbers(const DataInfo& data, std::string_view name, std::int64_t time) {
  const DataField* field = find_field(data, name);
  if (field == nullptr) return false;
  if (field->dtype == DType::kI32 && field->shape == Shape{time}) return true;
  fail_config(fmt::format("model decoder: data field '{}' must be i32 [{}], as 'tokens' is, found {} {}",
                          name, time, dtype_name(field->dtype), field->shape.text()));
}

/// Throws Error(kConfig) for data that is not of the model.
void require_drawn(const DataInfo& data) {
  for (const char* name : {"drawn", "advantages"})
    if (find_field(data, name) == nullptr)
      fail_config(
          fmt::format("model decoder: objective = \"policy\" needs a data field '{}'; choose a [data] "
                      "type whose samples the model draws, such as 'rollouts'",
                      name));
}

}  // namespace

std::int64_t time_of(const DataInfo& data) {
  for (const char* name : {"tokens", "targets"}) {
    if (find_field(data, name) != nullptr) continue;
    std::vector<std::string_view> known;
    for (const DataField& field : data.fields) known.push_back(field.name);
    fail_config(
        fmt::format("model decoder needs a data field '{}', the data offers: {}; choose a [data] type for "
                    "language models such as 'text'",
                    name, fmt::join(known, ", ")));
  }
  const DataField& tokens = *find_field(data, "tokens");
  if (tokens.dtype != DType::kI32 || tokens.shape.rank() != 1) {
    fail_config(fmt::format("model decoder: data field 'tokens' must be i32 [time], found {} {}",
                            dtype_name(tokens.dtype), tokens.shape.text()));
  }
  has_numbers(data, "targets", tokens.shape[0]);
  return tokens.shape[0];
}

std::int64_t vocabulary_rows(const Options& options, const DataInfo& data) {
  std::int64_t known = 0;
  for (const DataAttribute& attribute : data.attributes)
    if (attribute.name == "vocabulary") known = attribute.value;
  const std::int64_t vocabulary = options.has("vocabulary") ? options.integer("vocabulary") : known;
  if (vocabulary < 1 || vocabulary < known) {
    fail_config(fmt::format("model decoder: 'vocabulary' must cover the data's {} tokens, found {}", known,
                            vocabulary));
  }
  const std::int64_t multiple = options.integer("vocabulary_multiple");
  const std::int64_t rows = (vocabulary + multiple - 1) / multiple * multiple;
  if (rows > kMost) {
    fail_config(
        fmt::format("model decoder: 'vocabulary' {} rounded up to a multiple of {} has {} rows; expected at "
                    "most {}",
                    vocabulary, multiple, rows, kMost));
  }
  return rows;
}

namespace {

std::int64_t staying(const std::vector<PatternLayer>& layers) {
  return std::ranges::count_if(layers, [](const PatternLayer& layer) { return !layer.skipped(); });
}

}  // namespace

/// Appends nodes; each call returns the node's name, which is also its value's.
class Decoder::Writer {
 public:
  Writer(const Options& options, std::int64_t residual_layers, bool documents, bool positions)
      : documents_(documents), positions_(positions), init_scale_(options.real("init_scale")) {
    last_scale_ = options.boolean("depth_scaled_init")
                      ? init_scale_ / std::sqrt(static_cast<double>(residual_layers))
                      : init_scale_;
    width_ = options.integer("width");
  }

  std::string add(std::string name, std::string type, std::vector<std::string> inputs,
                  std::vector<NamedOption> options) {
    graph_.nodes.push_back({name, std::move(type), std::move(inputs), std::move(options)});
    return name;
  }
  std::string norm(const std::string& name, Norm kind, double eps) {
    return add(name, kind == Norm::kRms ? "rms_norm" : "layer_norm", {stream_}, {{"eps", eps}});
  }
  void begin(std::string value) { stream_ = std::move(value); }
  void layer(const PatternLayer& layer) {
    const std::string name = fmt::format("model.layers.{}", layer.number());
    const std::string normal = norm(name + ".norm", layer.choice("norm", kNorms), layer.real("eps"));
    const std::string branch = layer.is_attention() ? attention(name + ".self_attn", normal, layer)
                               : layer.is_mamba()   ? mamba(name + ".mamba", normal, layer)
                                                    : ffn(name + ".mlp", normal, layer);
    stream_ = add(name + ".residual", "residual", {stream_, branch}, {});
  }
  GraphSpec finish() { return std::move(graph_); }

 private:
  std::string linear(const std::string& name, const std::string& input, std::int64_t features, bool bias,
                     double scale) {
    return add(name, "linear", {input}, {{"features", features}, {"bias", bias}, {"init_scale", scale}});
  }

  /// Queries or keys of `heads` heads.
  std::string projected(const std::string& name, const char* part, const std::string& input,
                        std::int64_t heads, const PatternLayer& layer) {
    std::string value = linear(fmt::format("{}.{}_proj", name, part), input, heads * layer.head_width(),
                               layer.has_bias("qkv"), init_scale_);
    if (layer.boolean("qk_norm")) {
      value = add(fmt::format("{}.{}_norm", name, part), "rms_norm", {value},
                  {{"eps", layer.real("eps")}, {"columns", layer.head_width()}});
    }
    if (!layer.rotates()) return value;
    std::vector<std::string> inputs{value};
    if (positions_) inputs.emplace_back("positions");
    return add(fmt::format("{}.{}_rotary", name, part), "rotary", std::move(inputs),
               {{"heads", heads}, {"base", layer.real("rope_base")}});
  }

  std::string attention(const std::string& name, const std::string& input, const PatternLayer& layer) {
    std::vector<std::string> inputs{projected(name, "q", input, layer.heads(), layer),
                                    projected(name, "k", input, layer.kv_heads(), layer),
                                    linear(name + ".v_proj", input, layer.kv_heads() * layer.head_width(),
                                           layer.has_bias("qkv"), init_scale_)};
    if (documents_) inputs.emplace_back("documents");
    add(name, "attention", std::move(inputs),
        {{"heads", layer.heads()}, {"kv_heads", layer.kv_heads()}, {"window", layer.integer("window")}});
    return linear(name + ".o_proj", name, width_, layer.has_bias("out"), last_scale_);
  }

  std::string mamba(const std::string& name, const std::string& input, const PatternLayer& layer) {
    std::vector<std::string> inputs{input};
    if (documents_) inputs.emplace_back("documents");
    const auto limits = layer.reals("mamba_dt_limits");
    return add(name, "mamba2", std::move(inputs),
               {{"heads", layer.integer("mamba_heads")},
                {"head_width", layer.integer("mamba_head_width")},
                {"state", layer.integer("mamba_state")},
                {"groups", layer.integer("mamba_groups")},
                {"conv", layer.integer("mamba_conv")},
                {"chunk", layer.integer("mamba_chunk")},
                {"dt_limits", std::vector<double>(limits.begin(), limits.end())},
                {"norm_eps", layer.real("eps")},
                {"init_scale", init_scale_},
                {"out_init_scale", last_scale_}});
  }

  std::string ffn(const std::string& name, const std::string& input, const PatternLayer& layer) {
    const std::int64_t hidden = layer.integer("hidden");
    const bool bias = layer.has_bias("ffn");
    const Ffn kind = layer.choice("ffn", kFfns);
    const bool gated = kind == Ffn::kSwiglu || kind == Ffn::kGeglu;
    std::string gate;
    if (gated) gate = linear(name + ".gate_proj", input, hidden, bias, init_scale_);
    const std::string up = linear(name + ".up_proj", input, hidden, bias, init_scale_);
    const std::string active =
        gated ? add(name + ".act", "gate", {up, gate},
                    {{"map", std::string(kind == Ffn::kGeglu ? "gelu" : "silu")}})
              : add(name + ".act", kind == Ffn::kGelu ? "gelu" : "squared_relu", {up}, {});
    return linear(name + ".down_proj", active, width_, bias, last_scale_);
  }

  bool documents_, positions_;  ///< the data has such a field
  double init_scale_, last_scale_;
  std::int64_t width_ = 0;
  std::string stream_;  ///< the value that the next layer reads and adds to
  GraphSpec graph_;
};

std::string Decoder::write_body(Writer& writer, const DataInfo& data) const {
  const std::int64_t time = time_of(data);
  const std::int64_t context = options_.has("context") ? options_.integer("context") : time;
  if (context < time) {
    fail_config(fmt::format("model decoder: samples have {} tokens, but 'context' allows {}", time, context));
  }
  for (const PatternLayer& layer : layers_)
    if (!layer.skipped()) layer.check_context(context);
  const std::int64_t rows = vocabulary_rows(options_, data), width = options_.integer("width");
  const double init_scale = options_.real("init_scale");
  std::string embedded = writer.add("model.embed_tokens", "embedding", {"tokens"},
                                    {{"rows", rows}, {"width", width}, {"init_scale", init_scale}});
  if (options_.choice("position", kPositions) == Position::kLearned) {
    std::vector<std::string> place{embedded};
    if (has_numbers(data, "positions", time)) place.emplace_back("positions");
    embedded = writer.add("model.embed_positions", "positions", std::move(place),
                          {{"context", context}, {"init_scale", init_scale}});
  }
  writer.begin(embedded);
  for (const PatternLayer& layer : layers_) {
    if (!layer.skipped()) writer.layer(layer);
  }
  return writer.norm("model.norm", options_.choice("norm", kNorms), options_.real("eps"));
}

void Decoder::distil(GraphSpec& graph, const std::string& last, std::vector<NamedOption> head,
                     const DataInfo& data) const {
  StudentEnd student{
      .last = last, .head = std::move(head), .vocabulary = vocabulary_rows(options_, data), .layers = {}};
  for (const PatternLayer& layer : layers_)
    if (!layer.skipped()) student.layers.emplace_back(layer.number(), layer.kind_name());
  add_distillation(graph, options_, student, data, host_);
}

GraphSpec Decoder::build(const DataInfo& data) {
  const std::int64_t time = time_of(data);
  Writer writer(options_, staying(layers_), has_numbers(data, "documents", time),
                has_numbers(data, "positions", time));
  const std::string last = write_body(writer, data);
  const double init_scale = options_.real("init_scale");
  const std::int64_t rows = vocabulary_rows(options_, data);
  std::vector<NamedOption> head{
      {"vocabulary", rows}, {"init_scale", init_scale}, {"chunk_rows", options_.integer("chunk_rows")}};
  if (options_.boolean("tied")) head.push_back({"weight", std::string("model.embed_tokens.weight")});
  const bool policy = options_.choice("objective", kObjectives) == Objective::kPolicy;
  if (!options_.tables("distil").empty()) {
    GraphSpec graph = writer.finish();
    distil(graph, last, std::move(head), data);
    return graph;
  }
  writer.add("lm_head", policy ? "head_log_probs" : "head_cross_entropy", {last, "targets"}, std::move(head));
  if (policy) {
    require_drawn(data);
    writer.add("policy", "policy_loss", {"lm_head", "drawn", "advantages", "targets"},
               {{"clip", options_.real("clip")}});
  }
  return writer.finish();
}

// A prompt is one document that begins at position 0, whatever the samples of training are.
LanguageGraph Decoder::language_graph(const DataInfo& data) {
  DataInfo prompt = data;
  std::erase_if(prompt.fields, [](const DataField& field) {
    return field.name == "documents" || field.name == "positions";
  });
  Writer writer(options_, staying(layers_), false, false);
  const std::string last = write_body(writer, prompt);
  std::vector<NamedOption> options{{"features", vocabulary_rows(options_, data)},
                                   {"bias", false},
                                   {"init_scale", options_.real("init_scale")},
                                   {"module", std::string("head")}};
  if (options_.boolean("tied")) options.push_back({"weight", std::string("model.embed_tokens.weight")});
  writer.add("lm_head", "linear", {last}, std::move(options));
  return {writer.finish(), "lm_head"};
}

}  // namespace tenon::decoder

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.decoder",
                               .version = "0.1.0",
                               .summary = "language models as patterns of layers"},
             tenon::decoder::Decoder, tenon::decoder::Importer)
