// Maps the options of nvfp4 to a recipe.
#include "nvfp4.hpp"

namespace tenon::quantized {
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

}  // namespace tenon::quantized
