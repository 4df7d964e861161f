// The plugin `tenon.precision_quantized`: its components, each with its options and their recipe.
#include "policy.hpp"

#include <tenon/error.hpp>
#include <tenon/plugin.hpp>

namespace tenon::quantized {

/// Component `nvfp4` (arXiv 2509.25149): E2M1 with an E4M3 scale per 16 elements and one f32 per tensor.
/// Weights in 16x16 blocks, gradients rounded stochastically, wgrad's operands rotated; each of these can be
/// disabled.
class Nvfp4 final : public QuantizedPrecision {
 public:
  /// Each choice with its operand format.
  static constexpr auto kWeights = option::choice<const char*>({{"2d", "nvfp4_2d"}, {"1d", "nvfp4"}});
  static constexpr auto kRotations = option::choice<Rotate>(
      {{"wgrad", Rotate::kWgrad}, {"none", Rotate::kNone}, {"x", Rotate::kX}, {"dy", Rotate::kDy}});
  static constexpr auto kOptions = with(
      kCommonOptions,
      std::array{
          option::text("weights", "\"2d\"")
              .one_of(kWeights)
              .doc_text("blocks of weights: 16x16, or 1x16 along each product's contracted dimension"),
          option::text("rotate", "\"wgrad\"")
              .one_of(kRotations)
              .doc_text("16-point randomised Hadamard transform of wgrad's operands: both, none, or only x "
                        "or only dy, as controls that must fail"),
          option::text("stochastic", "\"gradients\"")
              .one_of(kGradientRounding)
              .doc_text("what is rounded stochastically"),
          option::integer("random_bits", "8")
              .between(8, 24)
              .doc_text("random bits of stochastic rounding: 8 or 24"),
          option::boolean("four_over_six", "false")
              .doc_text("per block, map the largest magnitude to 4 or to 6, whichever is nearer; only where "
                        "rounding is to nearest and nothing is rotated"),
      });
  static constexpr ComponentInfo kInfo{
      .id = "nvfp4", .summary = "products of NVFP4 operands, emulated bit for bit", .options = kOptions};
  static constexpr Identity kIdentities[] = {
      kSwitchedAtOnce,
      {.why = "where nothing is rounded stochastically no random bit is read",
       .options = "stochastic = 'none'\nrandom_bits = 24",
       .other = "type = 'nvfp4'\nstochastic = 'none'"},
  };
  explicit Nvfp4(const Options& options);

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
};

namespace {

constexpr std::string_view kNvfp4Formats[] = {"nvfp4"};

Recipe nvfp4_recipe(const Options& options) {
  Recipe recipe;
  recipe.formats = formats_of("nvfp4", options.choice("weights", Nvfp4::kWeights), "nvfp4");
  recipe.rotate = options.choice("rotate", Nvfp4::kRotations);
  recipe.stochastic = options.text("stochastic") == "gradients";
  recipe.random_bits = random_bits(options);
  recipe.four_over_six = options.boolean("four_over_six");
  return recipe;
}

}  // namespace

Nvfp4::Nvfp4(const Options& options)
    : QuantizedPrecision(kInfo.id, options, nvfp4_recipe(options), kNvfp4Formats) {}

// Components `mxfp4` and `mxfp8` (OCP Microscaling 1.0): blocks of 32 along each product's contracted
// dimension with a power of two as scale. mxfp8 follows arXiv 2506.08027: E4M3 for all operands, scales
// rounded up.

inline constexpr OptionSpec kScaleRule =
    option::text("scale", "\"rceil\"")
        .one_of(kPowerRules)
        .doc_text("the power of two of a block: rceil never saturates, floor is OCP's default");

class Mxfp4 final : public QuantizedPrecision {
 public:
  static constexpr auto kOptions =
      with(kCommonOptions, std::array{
                               kScaleRule,
                               option::text("stochastic", "\"gradients\"")
                                   .one_of(kGradientRounding)
                                   .doc_text("what is rounded stochastically"),
                               option::integer("random_bits", "8")
                                   .between(8, 24)
                                   .doc_text("random bits of stochastic rounding: 8 or 24"),
                           });
  static constexpr ComponentInfo kInfo{
      .id = "mxfp4", .summary = "products of MXFP4 operands, emulated bit for bit", .options = kOptions};
  static constexpr Identity kIdentities[] = {
      kSwitchedAtOnce,
  };
  explicit Mxfp4(const Options& options);

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
};

class Mxfp8 final : public QuantizedPrecision {
 public:
  /// Each choice with its operand format.
  static constexpr auto kGradients =
      option::choice<const char*>({{"e4m3", "mxfp8_e4m3"}, {"e5m2", "mxfp8_e5m2"}});
  static constexpr auto kOptions =
      with(kCommonOptions, std::array{
                               kScaleRule,
                               option::text("gradients", "\"e4m3\"")
                                   .one_of(kGradients)
                                   .doc_text("element format of gradients; weights and activations are E4M3"),
                           });
  static constexpr ComponentInfo kInfo{
      .id = "mxfp8", .summary = "products of MXFP8 operands, emulated bit for bit", .options = kOptions};
  static constexpr Identity kIdentities[] = {
      kSwitchedAtOnce,
      {.why = "a site of MXFP4 is one whatever recipe it leaves",
       .options = "site = {'*' = {fprop_x = 'mxfp4', fprop_w = 'mxfp4', dgrad_dy = 'mxfp4', dgrad_w = "
                  "'mxfp4', wgrad_dy = 'mxfp4', wgrad_x = 'mxfp4'}}",
       .other = "type = 'mxfp4'\nstochastic = 'none'"},
  };
  explicit Mxfp8(const Options& options);

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
};

namespace {

constexpr std::string_view kFp4[] = {"mxfp4"};
constexpr std::string_view kFp8[] = {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2"};

Recipe fp4_recipe(const Options& options) {
  Recipe recipe;
  recipe.formats = formats_of("mxfp4", "mxfp4", "mxfp4");
  recipe.power = options.choice("scale", kPowerRules);
  recipe.stochastic = options.text("stochastic") == "gradients";
  recipe.random_bits = random_bits(options);
  return recipe;
}

Recipe fp8_recipe(const Options& options) {
  Recipe recipe;
  recipe.formats = formats_of("mxfp8_e4m3", "mxfp8_e4m3", options.choice("gradients", Mxfp8::kGradients));
  recipe.power = options.choice("scale", kPowerRules);
  return recipe;
}

}  // namespace

Mxfp4::Mxfp4(const Options& options) : QuantizedPrecision(kInfo.id, options, fp4_recipe(options), kFp4) {}

Mxfp8::Mxfp8(const Options& options) : QuantizedPrecision(kInfo.id, options, fp8_recipe(options), kFp8) {}

/// Component `fp8`: E4M3 and E5M2 with one scale per tensor (of the present tensor, or of earlier slots), or
/// E4M3 with a scale per 1x128 elements of activations and gradients and per 128x128 of weights.
class Fp8 final : public QuantizedPrecision {
 public:
  enum class Scaling : std::uint8_t { kCurrent, kDelayed, kBlock };
  static constexpr auto kRecipes = option::choice<Scaling>(
      {{"current", Scaling::kCurrent}, {"delayed", Scaling::kDelayed}, {"block", Scaling::kBlock}});
  enum class Gradients : std::uint8_t { kAuto, kE4m3, kE5m2 };
  static constexpr auto kGradients = option::choice<Gradients>(
      {{"auto", Gradients::kAuto}, {"e4m3", Gradients::kE4m3}, {"e5m2", Gradients::kE5m2}});
  static constexpr const char* kScales[] = {"pow2", "fp32", nullptr};
  static constexpr const char* kAmax[] = {"max", "latest", nullptr};
  static constexpr auto kOptions = with(
      kCommonOptions,
      std::array{
          option::text("recipe", "\"current\"")
              .one_of(kRecipes)
              .doc_text("scales: per tensor from its current amax, per tensor from the amax of earlier "
                        "slots, or per block"),
          option::text("gradients", "\"auto\"")
              .one_of(kGradients)
              .doc_text("element format of gradients; auto: e5m2 with scales per tensor, e4m3 with blocks"),
          option::text("scales", "\"pow2\"")
              .one_of(kScales)
              .doc_text("block scales: powers of two, or f32 with one product per block of 128"),
          option::integer("history", "1024")
              .between(1, 65536)
              .in_unit("slots")
              .doc_text("recipe delayed: slots whose amax is remembered"),
          option::integer("margin", "0")
              .between(0, 16)
              .doc_text("recipe delayed: binades of head room, the scale is made 2^margin smaller"),
          option::text("amax", "\"max\"")
              .one_of(kAmax)
              .doc_text("recipe delayed: the largest of the history, or the latest"),
      });
  static constexpr ComponentInfo kInfo{
      .id = "fp8", .summary = "products of FP8 operands, emulated bit for bit", .options = kOptions};
  static constexpr Identity kIdentities[] = {
      kSwitchedAtOnce,
      {.why = "the latest of a history of one slot is its largest",
       .options = "recipe = 'delayed'\nhistory = 1\namax = 'latest'",
       .other = "type = 'fp8'\nrecipe = 'delayed'\nhistory = 1"},
  };
  explicit Fp8(const Options& options);

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
};

namespace {

constexpr std::string_view kFp8Formats[] = {"fp8_e4m3", "fp8_e5m2", "fp8_block"};

Recipe tensor_fp8_recipe(const Options& options) {
  Recipe recipe;
  const Fp8::Scaling kind = options.choice("recipe", Fp8::kRecipes);
  const Fp8::Gradients gradients = options.choice("gradients", Fp8::kGradients);
  const bool blocks = kind == Fp8::Scaling::kBlock;
  if (blocks) {
    if (gradients == Fp8::Gradients::kE5m2)
      fail_config(
          "recipe = \"block\" has no gradients in e5m2: with a scale per 128 elements "
          "E4M3's range suffices; take gradients = \"e4m3\", or recipe = \"current\"");
    recipe.formats = formats_of("fp8_block", "fp8_block_2d", "fp8_block");
  } else {
    recipe.formats =
        formats_of("fp8_e4m3", "fp8_e4m3", gradients == Fp8::Gradients::kE4m3 ? "fp8_e4m3" : "fp8_e5m2");
  }
  recipe.float_scales = options.text("scales") == "fp32";
  if (recipe.float_scales && !blocks)
    fail_config("scales = \"fp32\" is about blocks, but recipe = \"" + std::string(Fp8::kRecipes.name(kind)) +
                "\" has one f32 scale per tensor; take recipe = \"block\", or leave scales out");
  recipe.delayed = kind == Fp8::Scaling::kDelayed;
  recipe.history = options.integer("history");
  recipe.margin = static_cast<int>(options.integer("margin"));
  recipe.latest = options.text("amax") == "latest";
  if (!recipe.delayed && (recipe.margin != 0 || recipe.latest))
    fail_config("margin and amax belong to recipe = \"delayed\"; found recipe = \"" +
                std::string(Fp8::kRecipes.name(kind)) + "\", which looks at the tensor at hand");
  return recipe;
}

}  // namespace

Fp8::Fp8(const Options& options)
    : QuantizedPrecision(kInfo.id, options, tensor_fp8_recipe(options), kFp8Formats) {}

}  // namespace tenon::quantized

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.precision_quantized",
                               .version = "0.1.0",
                               .summary = "products of NVFP4, MXFP4, MXFP8 and FP8 operands"},
             tenon::quantized::Nvfp4, tenon::quantized::Mxfp4, tenon::quantized::Mxfp8, tenon::quantized::Fp8)
