// Selection of sites and their formats: counts, patterns, sections, switches, errors.
#include "plan.hpp"
#include "testing.hpp"

#include <gtest/gtest.h>

namespace tenon::quantized {
namespace {

using testing::Bench;

class RecipeTest : public ::testing::Test {
 protected:
  /// Returns the layers that the component leaves to the core.
  std::vector<int> kept(
      const char* type, const std::string& options, int layers,
      const std::function<void(SiteInfo&)>& change = [](SiteInfo&) {}) {
    const auto precision = bench.make_component<Precision>(type, options);
    std::vector<int> result;
    for (int layer = 0; layer < layers; ++layer) {
      SiteInfo info = testing::site_info(32, 32, 32);
      const std::string name = "h." + std::to_string(layer) + ".mlp.c_fc";
      info.layer = name;
      info.layer_index = info.block_index = layer;
      info.layer_count = info.block_count = layers;
      change(info);
      testing::TestHost host(*bench.device, 1);
      if (precision->bind(info, host) == nullptr) result.push_back(layer);
    }
    return result;
  }
  std::string refusal(const char* type, const std::string& options, int layers = 3) {
    try {
      kept(type, options, layers);
    } catch (const Error& error) {
      const std::string what = error.what(), guard = "): ";  // the core adds where and which component
      const std::size_t at = what.find(guard);
      return at == std::string::npos ? what : what.substr(at + guard.size());
    }
    return "";
  }

  Bench bench{"cpu", "reference", 1};
};

TEST_F(RecipeTest, P35_OfSixtyTwoBlocksTheFirstTwoAndTheLastEightStay) {
  EXPECT_EQ(kept("nvfp4", "keep_first = 2\nkeep_last = 8", 62),
            (std::vector<int>{0, 1, 54, 55, 56, 57, 58, 59, 60, 61}));
  EXPECT_TRUE(kept("nvfp4", "", 62).empty());
  const auto head = [](SiteInfo& info) {
    if (info.layer_index != 61) return;
    info.module = "head";
    info.block_index = -1;
  };
  EXPECT_EQ(kept("nvfp4", "", 62, head), std::vector<int>{61});
  EXPECT_TRUE(kept("nvfp4", "head = true", 62, head).empty());
}

TEST_F(RecipeTest, PatternsNameLayersThatStay) {
  EXPECT_EQ(kept("fp8", "keep = [\"h.1.*\", \"*.2.mlp.*\"]", 4), (std::vector<int>{1, 2}));
}

TEST_F(RecipeTest, P29_WhatCannotHoldIsRefusedWithTheReason) {
  EXPECT_EQ(refusal("nvfp4", "keep = [\"encoder.*\"]"),
            "precision nvfp4: the pattern 'encoder.*' matches no layer with products; there are "
            "h.0.mlp.c_fc, h.1.mlp.c_fc, h.2.mlp.c_fc");
  EXPECT_EQ(refusal("nvfp4", "keep_last = 3"),
            "precision nvfp4: every site stays in bf16 (keep_first, keep_last, keep_first_gemms, "
            "keep_last_gemms, keep, head), so nothing would "
            "run in the format that was asked for; take precision \"bf16\", or keep fewer of h.0.mlp.c_fc, "
            "h.1.mlp.c_fc, h.2.mlp.c_fc");
  EXPECT_EQ(refusal("nvfp4", "random_bits = 12"),
            "random_bits is 12; stochastic rounding takes 8 bits (as the hardware) or 24");
  EXPECT_EQ(refusal("fp8", "scales = \"fp32\""),
            "scales = \"fp32\" is about blocks, but recipe = \"current\" has one f32 scale per "
            "tensor; take recipe = \"block\", or leave scales out");
  EXPECT_EQ(refusal("fp8", "recipe = \"block\"\ngradients = \"e5m2\""),
            "recipe = \"block\" has no gradients in e5m2: with a scale per 128 elements E4M3's "
            "range suffices; take gradients = \"e4m3\", or recipe = \"current\"");
  EXPECT_EQ(refusal("fp8", "margin = 1"),
            "margin and amax belong to recipe = \"delayed\"; found recipe = \"current\", which "
            "looks at the tensor at hand");
  EXPECT_NE(refusal("nvfp4", "[site.\"h.*\"]\nfprop_x = \"int8\"").find("fprop_x"), std::string::npos);
  EXPECT_NE(refusal("mxfp4", "[site.\"h.9.*\"]\nfprop_x = \"bf16\"").find("the pattern 'h.9.*'"),
            std::string::npos);
}

TEST(Recipe, HasTheRolesOfThePublishedRecipes) {
  Recipe recipe;
  recipe.formats = formats_of("nvfp4", "nvfp4_2d", "nvfp4");
  recipe.stochastic = true;
  recipe.rotate = Rotate::kWgrad;
  const SitePlan plan = plan_of(recipe, recipe.formats, 100);
  for (int i = 0; i < kUses; ++i) {
    const Use use = static_cast<Use>(i);
    const bool gradient = use == Use::kDgradDy || use == Use::kWgradDy;
    const bool wgrad = use == Use::kWgradDy || use == Use::kWgradX;
    const bool weight = use == Use::kFpropW || use == Use::kDgradW;
    EXPECT_EQ(plan[use].rounding == RoundingMode::kStochastic, gradient) << key_of(use);
    EXPECT_EQ(plan[use].rotate, wgrad) << key_of(use);
    EXPECT_EQ(plan[use].format->square, weight) << key_of(use);
    const QuantizeSpec spec = spec_of(plan[use], use, 64, 48, DType::kBF16);
    EXPECT_EQ(spec.block_rows, weight || wgrad ? 16 : 1) << key_of(use);
    EXPECT_EQ(spec.block_columns, wgrad ? 1 : 16) << key_of(use);
  }
  EXPECT_TRUE(same_values(plan[Use::kFpropW], plan[Use::kDgradW]));
  EXPECT_FALSE(same_values(plan[Use::kFpropX], plan[Use::kWgradX]));
}

TEST(Recipe, BlocksLieAlongTheDimensionThatIsSummedOver) {
  Recipe recipe;
  recipe.formats = formats_of("mxfp4", "mxfp4", "mxfp4");
  const SitePlan plan = plan_of(recipe, recipe.formats, 100);
  for (const Use use : {Use::kFpropX, Use::kFpropW, Use::kDgradDy}) {
    const QuantizeSpec spec = spec_of(plan[use], use, 64, 64, DType::kF32);
    EXPECT_EQ(std::pair(spec.block_rows, spec.block_columns), std::pair(std::int64_t{1}, std::int64_t{32}))
        << key_of(use);
  }
  for (const Use use : {Use::kDgradW, Use::kWgradDy, Use::kWgradX}) {
    const QuantizeSpec spec = spec_of(plan[use], use, 64, 64, DType::kF32);
    EXPECT_EQ(std::pair(spec.block_rows, spec.block_columns), std::pair(std::int64_t{32}, std::int64_t{1}))
        << key_of(use);
  }
}

TEST(Recipe, RotatesBothOperandsOfWgradOrNone) {
  Recipe recipe;
  recipe.rotate = Rotate::kWgrad;
  FormatSet formats = formats_of("nvfp4", "nvfp4_2d", "nvfp4");
  formats[index_of(Use::kWgradX)] = &format_of("mxfp8_e4m3");
  const SitePlan plan = plan_of(recipe, formats, 0);
  EXPECT_FALSE(plan[Use::kWgradDy].rotate);
  EXPECT_FALSE(plan[Use::kWgradX].rotate);
}

TEST(Recipe, P36_SwitchesAtAFractionOfTheRun) {
  Recipe recipe;
  recipe.formats = formats_of("nvfp4", "nvfp4_2d", "nvfp4");
  recipe.late = Switch::kForward;
  const SitePlan plan = plan_of(recipe, recipe.formats, 1000);
  EXPECT_EQ(plan.switch_slot, 820);
  EXPECT_FALSE(plan.switched(Use::kFpropX, 819));
  EXPECT_TRUE(plan.switched(Use::kFpropX, 820));
  EXPECT_TRUE(plan.switched(Use::kFpropW, 999));
  EXPECT_FALSE(plan.switched(Use::kDgradW, 999));
  EXPECT_FALSE(plan.switched(Use::kWgradX, 999));
  EXPECT_EQ(switch_slot(0.82, 7), 6);
  EXPECT_FALSE(plan_of(recipe, recipe.formats, 0).switched(Use::kFpropX, 1000000)) << "outside runs never";
}

}  // namespace
}  // namespace tenon::quantized
