// Maps the options of fp8 to a recipe.
#include "fp8.hpp"

#include <tenon/error.hpp>

namespace tenon::quantized {
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
