// A layer of a decoder's pattern: its letter, its number, and its options, which are the model's under those
// of the [[model.block]] tables that match it. Also the options that both tables share. Builds no graph.
#pragma once

#include <tenon/options.hpp>
#include <tenon/plugin.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
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
enum class Kind : std::uint8_t { kAttention, kFfn, kMamba };
/// By Kind: letters of patterns, and kinds that [[model.block]] names.
constexpr std::string_view kLetters = "*-M";
constexpr std::string_view kKindNames[] = {"attention", "ffn", "mamba"};
/// For messages about patterns.
constexpr const char* kLetterMeanings = "* attention, - FFN or M Mamba-2";
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

constexpr OptionSpec mamba_heads_option() {
  return option::integer("mamba_heads", nullptr)
      .between(1, kMost)
      .doc_text("heads of a Mamba-2 layer, a multiple of mamba_groups; needed where the pattern has one");
}
constexpr OptionSpec mamba_head_width_option(const char* fallback) {
  return option::integer("mamba_head_width", fallback)
      .between(1, kMost)
      .doc_text("elements of a head of a Mamba-2 layer");
}
constexpr OptionSpec mamba_state_option(const char* fallback) {
  return option::integer("mamba_state", fallback)
      .between(1, kMost)
      .doc_text("columns of the state of each of its heads");
}
constexpr OptionSpec mamba_groups_option(const char* fallback) {
  return option::integer("mamba_groups", fallback)
      .between(1, kMost)
      .doc_text("groups of its heads, each with its own B, C and norm before the last map");
}
constexpr OptionSpec mamba_conv_option(const char* fallback) {
  return option::integer("mamba_conv", fallback)
      .between(1, kMost)
      .in_unit("tokens")
      .doc_text("tokens that its convolution sees, the current one included");
}
constexpr OptionSpec mamba_chunk_option(const char* fallback) {
  return option::integer("mamba_chunk", fallback)
      .between(1, kMost)
      .in_unit("tokens")
      .doc_text("tokens that it computes with matrix products at a time; no value depends on it");
}
constexpr OptionSpec mamba_dt_limits_option(const char* fallback) {
  return option::reals("mamba_dt_limits", fallback)
      .length(2)
      .at_least(0)
      .doc_text("bounds of its time steps; 0: none");
}

/// [[model.block]]
constexpr OptionSpec kBlockOptions[] = {
    option::text("at", nullptr)
        .mandatory()
        .doc_text(
            "layers that it is for: a number, counted from 0 over the repeated pattern, or a pattern of "
            "numbers with * and ?; then, for those of one kind alone, :attention, :ffn or :mamba, as "
            "in \"*:attention\""),
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
    mamba_heads_option(),
    mamba_head_width_option(nullptr),
    mamba_state_option(nullptr),
    mamba_groups_option(nullptr),
    mamba_conv_option(nullptr),
    mamba_chunk_option(nullptr),
    mamba_dt_limits_option(nullptr),
};

/// Names of kBlockOptions that mean something for layers of one kind alone.
constexpr std::string_view kAttentionOptions[] = {"heads",   "kv_heads", "head_width", "window",
                                                  "qk_norm", "position", "rope_base"};
constexpr std::string_view kFfnOptions[] = {"ffn", "hidden"};
constexpr std::string_view kMambaOptions[] = {"mamba_heads",    "mamba_head_width", "mamba_state",
                                              "mamba_groups",   "mamba_conv",       "mamba_chunk",
                                              "mamba_dt_limits"};
/// All of the above, by Kind.
constexpr std::span<const std::string_view> kKindOptions[] = {kAttentionOptions, kFfnOptions, kMambaOptions};

/// A layer of the pattern: the model's options under those of the blocks that match it.
class PatternLayer {
 public:
  PatternLayer(const Options& model, Kind kind, std::int64_t number)
      : model_(&model), kind_(kind), number_(number) {}

  Kind kind() const { return kind_; }
  bool is_attention() const { return kind_ == Kind::kAttention; }
  bool is_ffn() const { return kind_ == Kind::kFfn; }
  bool is_mamba() const { return kind_ == Kind::kMamba; }
  char letter() const { return kLetters[static_cast<std::size_t>(kind_)]; }
  std::string_view kind_name() const { return kKindNames[static_cast<std::size_t>(kind_)]; }
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
  std::span<const double> reals(std::string_view name) const { return of(name).reals(name); }
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

  /// Elements of all heads of a Mamba-2 layer.
  std::int64_t mamba_width() const { return integer("mamba_heads") * integer("mamba_head_width"); }

  /// Throws Error(kConfig) if the layer's numbers do not fit each other.
  void check() const;
  /// Throws Error(kConfig) for a convolution that sees more than `context` tokens.
  void check_context(std::int64_t context) const;

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
  void check_attention() const;
  void check_mamba() const;
  /// `names`: options that the error is about; a block that set one of them is named first.
  [[noreturn]] void refuse(std::initializer_list<std::string_view> names, const std::string& what) const;

  const Options* model_;  // outlives the layer
  Kind kind_;
  std::int64_t number_;
  std::vector<Block> blocks_;  ///< the newest first
};

}  // namespace tenon::decoder
