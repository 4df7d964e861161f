// Model `decoder`: a language model as a pattern of layers, each x + f(norm(x)): `*` attention, `-` FFN.
// Llama, Phi-3 and forms without positions are settings of it, and [[model.block]] changes single layers.
// Data fields: "tokens" and "targets", i32 [time]; "documents" and "positions", i32 [time], where the data
// has them. Parameter names are those of Hugging Face's Llama, except that a layer here is one letter of the
// pattern.
#include "importer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tenon/error.hpp>
#include <tenon/model.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/outside_training.hpp>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::decoder {

constexpr std::int64_t kMost = 2147483647;
constexpr std::int64_t kMostLayers = 4096;

enum class Norm : std::uint8_t { kRms, kLayer };
enum class Position : std::uint8_t { kRope, kLearned, kNone };
enum class Ffn : std::uint8_t { kSwiglu, kGeglu, kSquaredRelu, kGelu };
constexpr auto kNorms = option::choice<Norm>({{"rms", Norm::kRms}, {"layer", Norm::kLayer}});
constexpr auto kPositions = option::choice<Position>(
    {{"rope", Position::kRope}, {"learned", Position::kLearned}, {"none", Position::kNone}});
constexpr auto kLayerPositions =
    option::choice<Position>({{"rope", Position::kRope}, {"none", Position::kNone}});
constexpr auto kFfns = option::choice<Ffn>({{"swiglu", Ffn::kSwiglu},
                                            {"geglu", Ffn::kGeglu},
                                            {"squared_relu", Ffn::kSquaredRelu},
                                            {"gelu", Ffn::kGelu}});
enum class Objective : std::uint8_t { kTokens, kPolicy };
constexpr auto kObjectives =
    option::choice<Objective>({{"tokens", Objective::kTokens}, {"policy", Objective::kPolicy}});
constexpr const char* kBiases[] = {"qkv", "out", "ffn", nullptr};
constexpr auto kArchitectures =
    option::choice<Architecture>({{kLlamaName, Architecture::kLlama}, {kPhi3Name, Architecture::kPhi3}});

// Options that all layers have and that [[model.block]] may change for some; `fallback` is the default.

constexpr OptionSpec norm_option(const char* fallback) {
  return option::text("norm", fallback).one_of(kNorms).doc_text("norm before each layer and before the head");
}
constexpr OptionSpec eps_option(const char* fallback) {
  return option::real("eps", fallback)
      .at_least(0)
      .doc_text("added by norms to the mean square or the variance");
}
constexpr OptionSpec bias_option(const char* fallback) {
  return option::texts("bias", fallback)
      .one_of(kBiases)
      .doc_text("linear maps with a bias: qkv (queries, keys, values), out (output of attention), ffn");
}
constexpr OptionSpec heads_option() {
  return option::integer("heads", nullptr)
      .between(1, kMost)
      .doc_text("query heads; needed where the pattern has attention");
}
constexpr OptionSpec kv_heads_option() {
  return option::integer("kv_heads", nullptr)
      .between(1, kMost)
      .doc_text("heads of keys and values, a divisor of heads; absent: heads");
}
constexpr OptionSpec head_width_option() {
  return option::integer("head_width", nullptr)
      .between(1, kMost)
      .doc_text("elements of a head; absent: width / heads");
}
constexpr OptionSpec window_option(const char* fallback) {
  return option::integer("window", fallback)
      .between(0, kMost)
      .in_unit("tokens")
      .doc_text("position t sees t - window + 1 ... t; 0: all earlier ones");
}
constexpr OptionSpec qk_norm_option(const char* fallback) {
  return option::boolean("qk_norm", fallback)
      .doc_text("RMS norm of each head of queries and keys, before the rotation");
}
constexpr OptionSpec rope_base_option(const char* fallback) {
  return option::real("rope_base", fallback).at_least(1).doc_text("base of the angles of rotary positions");
}
constexpr OptionSpec ffn_option(const char* fallback) {
  return option::text("ffn", fallback)
      .one_of(kFfns)
      .doc_text(
          "FFN; swiglu and geglu: up x silu(gate) or gelu(gate), three matrices; squared_relu and gelu: two");
}
constexpr OptionSpec hidden_option() {
  return option::integer("hidden", nullptr)
      .between(1, kMost)
      .doc_text("width inside an FFN; needed where the pattern has one");
}

/// [[model.block]]
constexpr OptionSpec kBlockOptions[] = {
    option::text("at", nullptr)
        .mandatory()
        .doc_text(
            "layers that it is for: a number, counted from 0 over the repeated pattern, or a pattern of "
            "numbers with * and ?; then, for those of one kind alone, :attention or :ffn, as in "
            "\"*:attention\""),
    option::boolean("skip", "false").doc_text("leave the layer out: x + 0; the others keep their numbers"),
    norm_option(nullptr),
    eps_option(nullptr),
    bias_option(nullptr),
    heads_option(),
    kv_heads_option(),
    head_width_option(),
    window_option(nullptr),
    qk_norm_option(nullptr),
    option::text("position", nullptr)
        .one_of(kLayerPositions)
        .doc_text("rope: rotate queries and keys of the layer; none: do not"),
    rope_base_option(nullptr),
    ffn_option(nullptr),
    hidden_option(),
};

/// Names of kBlockOptions that mean something for layers of one kind alone.
constexpr std::string_view kAttentionOptions[] = {"heads",   "kv_heads", "head_width", "window",
                                                  "qk_norm", "position", "rope_base"};
constexpr std::string_view kFfnOptions[] = {"ffn", "hidden"};

/// A layer of the pattern: the model's options under those of the blocks that match it.
class PatternLayer {
 public:
  PatternLayer(const Options& model, char letter, std::int64_t number)
      : model_(&model), letter_(letter), number_(number) {}

  bool is_attention() const { return letter_ == '*'; }
  const char* kind() const { return is_attention() ? "attention" : "ffn"; }
  std::int64_t number() const { return number_; }
  /// A later block overrides an earlier one. `index` among [[model.block]].
  void add_block(std::int64_t index, const Options& block) {
    blocks_.insert(blocks_.begin(), {index, &block});
  }
  bool skipped() const {
    const auto skips = [](const Block& block) { return block.options->boolean("skip"); };
    return std::any_of(blocks_.begin(), blocks_.end(), skips);
  }

  bool has(std::string_view name) const { return of(name).has(name); }
  std::int64_t integer(std::string_view name) const { return of(name).integer(name); }
  double real(std::string_view name) const { return of(name).real(name); }
  bool boolean(std::string_view name) const { return of(name).boolean(name); }
  template <typename Choices>
  auto choice(std::string_view name, const Choices& choices) const {
    return of(name).choice(name, choices);
  }
  bool has_bias(std::string_view part) const {
    const auto biases = of("bias").texts("bias");
    return std::find(biases.begin(), biases.end(), part) != biases.end();
  }

  std::int64_t heads() const { return integer("heads"); }
  std::int64_t kv_heads() const { return has("kv_heads") ? integer("kv_heads") : heads(); }
  std::int64_t head_width() const {
    return has("head_width") ? integer("head_width") : model_->integer("width") / heads();
  }
  bool rotates() const { return choice("position", kPositions) == Position::kRope; }

  /// Throws Error(kConfig) if the layer's numbers do not fit each other.
  void check() const;

 private:
  struct Block {
    std::int64_t index;
    const Options* options;
  };

  const Options& of(std::string_view name) const {
    for (const Block& block : blocks_)
      if (block.options->has(name)) return *block.options;
    return *model_;
  }
  /// `names`: options that the error is about; a block that set one of them is named first.
  [[noreturn]] void refuse(std::initializer_list<std::string_view> names, const std::string& what) const;

  const Options* model_;  // outlives the layer
  char letter_;
  std::int64_t number_;
  std::vector<Block> blocks_;  ///< the newest first
};

class Decoder final : public Model, public LanguageModel, public ModelNames {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("pattern", nullptr)
          .mandatory()
          .doc_text("layers in their order: * attention, - FFN; \"*-\" repeated is Llama"),
      option::integer("repeat", "1").between(1, kMostLayers).doc_text("times that the pattern is repeated"),
      option::integer("width", nullptr)
          .mandatory()
          .between(1, kMost)
          .doc_text("width of the residual stream"),
      norm_option("\"rms\""),
      eps_option("1e-5"),
      option::text("position", "\"rope\"")
          .one_of(kPositions)
          .doc_text("rope: queries and keys are rotated; learned: a row per position is added to the "
                    "embedding; none"),
      rope_base_option("10000"),
      heads_option(),
      kv_heads_option(),
      head_width_option(),
      window_option("0"),
      qk_norm_option("false"),
      ffn_option("\"swiglu\""),
      hidden_option(),
      bias_option("[]"),
      option::boolean("tied", "false").doc_text("the head's weight is the embedding's"),
      option::integer("vocabulary", nullptr).between(1, kMost).doc_text("tokens; absent: the data's"),
      option::integer("vocabulary_multiple", "1")
          .between(1, kMost)
          .doc_text("rows of embedding and head are rounded up to a multiple of this"),
      option::integer("context", nullptr)
          .between(1, kMost)
          .in_unit("tokens")
          .doc_text("longest sample, and rows of learned positions; absent: the data's"),
      option::real("init_scale", "0.02").at_least(0).doc_text("standard deviation of all initial matrices"),
      option::boolean("depth_scaled_init", "false")
          .doc_text("divide that of the maps that end a layer by the square root of the number of layers"),
      option::integer("chunk_rows", "0")
          .between(0, kMost)
          .in_unit("rows")
          .doc_text("rows of logits that the head holds at a time; 0: chosen by the head"),
      option::text("objective", "\"tokens\"")
          .one_of(kObjectives)
          .doc_text("tokens: cross-entropy of the targets; policy: the clipped objective of targets that the "
                    "model drew, for data with the fields drawn and advantages"),
      option::real("clip", "0.2").between(0, 1000).doc_text("of the layer policy_loss"),
      option::text("export_as", nullptr)
          .one_of(kArchitectures)
          .doc_text(
              "the model in other programs, for tenon export: LlamaForCausalLM, or Phi3ForCausalLM; absent: "
              "Phi3ForCausalLM with a window, else LlamaForCausalLM"),
      option::tables<kBlockOptions>("block").doc_text(
          "options of single layers, over those of the model; a later table overrides an earlier one"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "decoder",
      .summary = "language model as a pattern of attention and FFN layers: Llama, Phi-3 and others",
      .options = kOptions};

  explicit Decoder(const Options& options);
  GraphSpec build(const DataInfo& data) override;
  LanguageGraph language_graph(const DataInfo& data) override;
  NamePlan name_plan(const DataInfo& data) override;
  void* query(std::string_view interface_id) override {
    if (interface_id == ModelNames::kId) return static_cast<ModelNames*>(this);
    return interface_id == LanguageModel::kId ? static_cast<LanguageModel*>(this) : nullptr;
  }

 private:
  Architecture architecture() const;
  void require_uniform(Architecture architecture) const;
  std::string config_json(Architecture architecture, const DataInfo& data) const;
  void read_pattern();
  void apply_block(std::int64_t index, const Options& block);

  const Options& options_;  // outlives the model
  std::vector<PatternLayer> layers_;
};

// Reading and checking the options.

namespace {

[[noreturn]] void refuse_block(std::int64_t index, const Options& block, const std::string& what) {
  fail_config(fmt::format("model decoder: 'block' {} (at \"{}\") {}", index, block.text("at"), what));
}

}  // namespace

void PatternLayer::refuse(std::initializer_list<std::string_view> names, const std::string& what) const {
  std::string block;
  for (const std::string_view name : names) {
    const auto sets = [&](const Block& one) { return one.options == &of(name); };
    const auto found = std::find_if(blocks_.begin(), blocks_.end(), sets);
    if (!block.empty() || found == blocks_.end()) continue;
    block = fmt::format("'block' {} (at \"{}\"), ", found->index, found->options->text("at"));
  }
  fail_config(fmt::format("model decoder: {}layer {} ({}): {}", block, number_, kind(), what));
}

void PatternLayer::check() const {
  if (!is_attention()) {
    if (!has("hidden")) refuse({}, "'hidden' is missing, the width inside the FFN; set it in [model]");
    return;
  }
  if (!has("heads")) refuse({}, "'heads' is missing, the number of query heads; set it in [model]");
  if (heads() % kv_heads() != 0) {
    refuse({"kv_heads", "heads"},
           fmt::format("'kv_heads' {} does not divide 'heads' {}; expected a divisor", kv_heads(), heads()));
  }
  if (const std::int64_t width = model_->integer("width"); !has("head_width") && width % heads() != 0) {
    refuse({"heads"},
           fmt::format("'heads' {} does not divide 'width' {}; expected a divisor, or a 'head_width'",
                       heads(), width));
  }
  if (rotates() && head_width() % 2 != 0) {
    refuse(
        {"head_width", "heads"},
        fmt::format("rotary positions turn pairs of elements, so '{}' must give an even head width; found {}",
                    has("head_width") ? "head_width" : "heads", head_width()));
  }
}

Decoder::Decoder(const Options& options) : options_(options) {
  read_pattern();
  std::int64_t index = 0;
  for (const Options* block : options.tables("block")) apply_block(index++, *block);
  const auto skipped = [](const PatternLayer& layer) { return layer.skipped(); };
  if (std::all_of(layers_.begin(), layers_.end(), skipped))
    fail_config("model decoder: 'block' skips every layer; expected at least one that stays");
  for (const PatternLayer& layer : layers_) {
    if (!layer.skipped()) layer.check();
  }
}

void Decoder::read_pattern() {
  const std::string_view pattern = options_.text("pattern");
  const std::int64_t repeat = options_.integer("repeat");
  if (pattern.empty())
    fail_config("model decoder: 'pattern' has no layer; expected letters such as \"*-\": * attention, - FFN");
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char letter = pattern[at];
    if (letter == '*' || letter == '-') continue;
    if (letter == 'M') {
      fail_config(
          fmt::format("model decoder: 'pattern' has a Mamba-2 layer, M at {}, and this version has none; "
                      "expected * attention or - FFN",
                      at));
    }
    const auto byte = static_cast<unsigned char>(letter);
    fail_config(fmt::format(
        "model decoder: 'pattern' has {} at {}; expected * attention or - FFN",
        byte >= ' ' && byte <= '~' ? fmt::format("'{}'", letter) : fmt::format("byte {}", byte), at));
  }
  const auto letters = static_cast<std::int64_t>(pattern.size());
  if (letters > kMostLayers / repeat) {
    fail_config(
        fmt::format("model decoder: 'pattern' of {} letters, repeated {} times, has more than {} layers",
                    letters, repeat, kMostLayers));
  }
  for (std::int64_t number = 0; number < letters * repeat; ++number)
    layers_.emplace_back(options_, pattern[static_cast<std::size_t>(number % letters)], number);
}

void Decoder::apply_block(std::int64_t index, const Options& block) {
  const std::string_view at = block.text("at");
  const std::size_t colon = std::min(at.find(':'), at.size());
  const std::string_view numbers = at.substr(0, colon), kind = colon < at.size() ? at.substr(colon + 1) : "";
  if (colon < at.size() && kind != "attention" && kind != "ffn")
    refuse_block(index, block, fmt::format("names the kind '{}'; expected attention or ffn", kind));
  bool attention = false, ffn = false;
  for (PatternLayer& layer : layers_) {
    if (!matches_pattern(numbers, std::to_string(layer.number())) || (!kind.empty() && kind != layer.kind()))
      continue;
    layer.add_block(index, block);
    (layer.is_attention() ? attention : ffn) = true;
  }
  if (!attention && !ffn) {
    refuse_block(
        index, block,
        fmt::format("matches no layer; expected a number from 0 to {}, or a pattern of numbers such as * "
                    "or 1?, and then, for layers of one kind, :attention or :ffn",
                    layers_.size() - 1));
  }
  const auto require = [&](bool matched, const auto& names, const char* which) {
    for (const std::string_view name : names) {
      if (matched || !block.has(name)) continue;
      refuse_block(
          index, block,
          fmt::format("sets '{}', which only layers of kind {} have, and matches none of them", name, which));
    }
  };
  require(attention, kAttentionOptions, "attention");
  require(ffn, kFfnOptions, "ffn");
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

/// Tokens of a sample.
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

/// Rows of the embedding.
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

/// Appends nodes; each call returns the node's name, which is also its value's.
class Writer {
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

}  // namespace

GraphSpec Decoder::build(const DataInfo& data) {
  const std::int64_t time = time_of(data);
  const std::int64_t context = options_.has("context") ? options_.integer("context") : time;
  if (context < time) {
    fail_config(fmt::format("model decoder: samples have {} tokens, but 'context' allows {}", time, context));
  }
  const std::int64_t rows = vocabulary_rows(options_, data), width = options_.integer("width");
  const double init_scale = options_.real("init_scale");
  const auto stays = [](const PatternLayer& layer) { return !layer.skipped(); };
  Writer writer(options_, std::count_if(layers_.begin(), layers_.end(), stays),
                has_numbers(data, "documents", time), has_numbers(data, "positions", time));
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
  const std::string last = writer.norm("model.norm", options_.choice("norm", kNorms), options_.real("eps"));
  std::vector<NamedOption> head{
      {"vocabulary", rows}, {"init_scale", init_scale}, {"chunk_rows", options_.integer("chunk_rows")}};
  if (options_.boolean("tied")) head.push_back({"weight", std::string("model.embed_tokens.weight")});
  const bool policy = options_.choice("objective", kObjectives) == Objective::kPolicy;
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
  LanguageGraph result{build(prompt), "lm_head"};
  if (result.graph.nodes.back().name != "lm_head") result.graph.nodes.pop_back();  // the loss of a policy
  NodeSpec& head = result.graph.nodes.back();
  std::vector<NamedOption> options{{"features", vocabulary_rows(options_, data)},
                                   {"bias", false},
                                   {"init_scale", options_.real("init_scale")},
                                   {"module", std::string("head")}};
  if (options_.boolean("tied")) options.push_back({"weight", std::string("model.embed_tokens.weight")});
  head = {"lm_head", "linear", {head.inputs[0]}, std::move(options)};
  return result;
}

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
    if (layer.is_attention() != (layer.number() % 2 == 0))
      refuse(fmt::format("layer {} of 'pattern' is {}; expected * and - in turns", layer.number(),
                         layer.is_attention() ? "*" : "-"));
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

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.decoder",
                               .version = "0.1.0",
                               .summary = "language models as patterns of layers"},
             tenon::decoder::Decoder, tenon::decoder::Importer)
