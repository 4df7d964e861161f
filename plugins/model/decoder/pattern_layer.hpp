// A layer of a decoder's pattern: its letter, its number, and its options, which are the model's under those
// of the [[model.block]] tables that match it. Also the options that both tables share. Builds no graph.
#pragma once

#include <tenon/options.hpp>
#include <tenon/plugin.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
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
constexpr const char* kBiases[] = {"qkv", "out", "ffn", nullptr};

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

}  // namespace tenon::decoder
