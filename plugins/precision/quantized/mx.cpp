// Maps the options of mxfp4 and mxfp8 to recipes.
#include "mx.hpp"

namespace tenon::quantized {
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

}  // namespace tenon::quantized
