// Mixtures of representations: scales, choices and their edges, and the errors of known distributions.
#include <tenon/kernels/reference/mor.hpp>

#include <cmath>
#include <random>

#include "testing.hpp"

namespace tenon::kernels::mor_test {
namespace {

float mantissa_of(float x) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) & 0x7fffffu) | 0x3f800000u);
}

TEST(MorScale, P38_GamLiesBetweenHalfAndAllOfTheBlocksOwn) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(-75, 100), fall(0, 40);
  for (int i = 0; i < 200000; ++i) {
    const float tensor = std::exp2(exponent(random)), block = tensor * std::exp2(-fall(random));
    const float own = 448.0f / block;
    const float scale = mor_scale(MorStrategy::kGam, block, tensor, 448.0f);
    ASSERT_LE(scale, own) << std::hexfloat << block << " " << tensor;
    ASSERT_GT(scale, own / 2) << std::hexfloat << block << " " << tensor;
    ASSERT_EQ(mantissa_of(scale), mantissa_of(448.0f / tensor)) << "one mantissa for the whole tensor";
    ASSERT_EQ(mor_scale(MorStrategy::kGam, tensor, tensor, 448.0f), 448.0f / tensor);
    const float power = mor_scale(MorStrategy::kE8, block, tensor, 448.0f);
    ASSERT_EQ(mantissa_of(power), 1.0f);
    ASSERT_TRUE(power <= own && power > own / 2);
    ASSERT_EQ(mor_scale(MorStrategy::kBlock, block, tensor, 448.0f), own);
    ASSERT_EQ(mor_scale(MorStrategy::kCurrent, block, tensor, 448.0f), 448.0f / tensor);
  }
}

TEST(MorScale, P38_NoScaleOverflows) {
  for (const float tiny : {0.0f, 0x1p-149f, 0x1p-126f, 1e-36f}) {
    for (const MorStrategy strategy :
         {MorStrategy::kGam, MorStrategy::kBlock, MorStrategy::kE8, MorStrategy::kCurrent}) {
      for (const float largest : {7.5f, 448.0f})
        EXPECT_TRUE(std::isfinite(mor_scale(strategy, tiny, tiny, largest))) << tiny;
    }
  }
}

TEST(MorChoices, P38_SpansAtTheEdgeTakeTheSmallerFormat) {
  struct Edge {
    float span;
    MorMode mode;
    MorChoice at, above;
  };
  const Edge edges[] = {
      {7.5f, MorMode::kDynamicRange, MorChoice::kE2M3, MorChoice::kE4M3},
      {7.5f, MorMode::kQuantError, MorChoice::kE2M3, MorChoice::kE4M3},
      {28672.0f, MorMode::kDynamicRange, MorChoice::kE4M3, MorChoice::kE5M2},
      {114688.0f, MorMode::kQuantError, MorChoice::kE4M3, MorChoice::kE5M2},
      {939524096.0f, MorMode::kDynamicRange, MorChoice::kE5M2, MorChoice::kKeep},
      {939524096.0f, MorMode::kQuantError, MorChoice::kE5M2, MorChoice::kKeep},
  };
  for (const Edge& edge : edges) {
    EXPECT_EQ(mor_by_span(edge.span, edge.mode, true), edge.at) << edge.span;
    EXPECT_EQ(mor_by_span(std::nextafter(edge.span, 2e9f), edge.mode, true), edge.above) << edge.span;
  }
  EXPECT_EQ(mor_by_span(1.0f, MorMode::kDynamicRange, false), MorChoice::kE4M3) << "E2M3 only when asked for";
  EXPECT_EQ(mor_by_error(0.25, 0.25), MorChoice::kE4M3);
  EXPECT_EQ(mor_by_error(std::nextafter(0.25, 1.0), 0.25), MorChoice::kKeep);
}

std::vector<Bf16> gaussian(std::size_t n, unsigned seed, double spread = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Bf16> values(n);
  for (Bf16& value : values) {
    const double z = normal(random);
    value = to_bf16(static_cast<float>(spread > 0 ? z * std::exp(spread * normal(random)) : z));
  }
  return values;
}

MorArgs args_of(const std::vector<Bf16>& x, std::int64_t rows) {
  MorArgs args;
  args.x = x.data();
  args.rows = rows;
  args.columns = static_cast<std::int64_t>(x.size()) / rows;
  return args;
}

TEST(Mor, P38_AnErrorAtTheThresholdIsTaken) {
  const auto x = gaussian(96 * 80, 2);
  std::vector<Bf16> values(x.size());
  MorArgs args = args_of(x, 96);
  const double error = reference::mor(args, values.data(), nullptr).error;
  args.threshold = error;
  EXPECT_EQ(reference::mor(args, values.data(), nullptr).tensor, MorChoice::kE4M3);
  args.threshold = std::nextafter(error, 0.0);
  EXPECT_EQ(reference::mor(args, values.data(), nullptr).tensor, MorChoice::kKeep);
}

TEST(Mor, P38_ZerosAreE4M3AndNothingDividesByThem) {
  const std::vector<Bf16> x(40 * 24, Bf16{0});
  std::vector<Bf16> values(x.size(), Bf16{1});
  for (const MorMode mode : {MorMode::kTensor, MorMode::kQuantError, MorMode::kDynamicRange}) {
    MorArgs args = args_of(x, 40);
    args.mode = mode;
    args.block_rows = args.block_columns = 16;
    std::vector<std::uint8_t> choices(6, 9);
    const MorResult result = reference::mor(args, values.data(), choices.data());
    EXPECT_EQ(result.error, 0);
    EXPECT_EQ(result.non_zero, 0);
    EXPECT_EQ(result.elements[static_cast<int>(MorChoice::kE4M3)], 40 * 24);
    EXPECT_EQ(choices, std::vector<std::uint8_t>(6, static_cast<std::uint8_t>(MorChoice::kE4M3)));
    for (const Bf16 value : values) ASSERT_EQ(value.bits & 0x7fff, 0);
  }
}

TEST(Mor, P38_NothingSaturates) {
  const auto x = gaussian(256 * 128, 3, 2.0);
  for (const MorStrategy strategy :
       {MorStrategy::kGam, MorStrategy::kBlock, MorStrategy::kE8, MorStrategy::kCurrent}) {
    MorArgs args = args_of(x, 256);
    args.block_rows = args.block_columns = 32;
    args.strategy = strategy;
    std::vector<Bf16> values(x.size());
    std::vector<float> scales(8 * 4);
    reference::mor(args, values.data(), nullptr, {.scales = scales.data()});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t block = i / 128 / 32 * 4 + i % 128 / 32;
      // 464 is where E4M3 would begin to lose to saturation; only the rounding of 448 / amax is allowed.
      ASSERT_LE(std::fabs(to_float(x[i]) / scales[block]), 448.0f * (1 + 0x1p-21f));
    }
  }
}

TEST(Mor, P39_FallingBackLeavesEveryBit) {
  auto x = gaussian(64 * 64, 4, 3.0);
  x[5] = Bf16{0x8000};
  std::vector<Bf16> values(x.size());
  MorArgs args = args_of(x, 64);
  args.threshold = 0;
  EXPECT_EQ(reference::mor(args, values.data(), nullptr).tensor, MorChoice::kKeep);
  EXPECT_TRUE(testing::same_bits(values, x));
  for (const std::uint16_t bad : {0x7f80, 0xff80, 0x7fc0}) {
    x[77] = Bf16{bad};
    args.threshold = 1;
    const MorResult result = reference::mor(args, values.data(), nullptr);
    EXPECT_FALSE(result.finite);
    EXPECT_EQ(result.tensor, MorChoice::kKeep);
    EXPECT_TRUE(testing::same_bits(values, x)) << "what is not finite is passed on";
  }
}

TEST(Mor, P39_WhatE4M3GivesIsNear) {
  const auto x = gaussian(128 * 128, 5, 1.0);
  std::vector<Bf16> values(x.size());
  std::vector<float> scales(16);
  MorArgs args = args_of(x, 128);
  args.block_rows = args.block_columns = 32;
  args.threshold = 1;
  ASSERT_EQ(reference::mor(args, values.data(), nullptr, {.scales = scales.data()}).tensor, MorChoice::kE4M3);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(to_float(x[i])), y = static_cast<double>(to_float(values[i]));
    const double decode = static_cast<double>(scales[i / 128 / 32 * 4 + i % 128 / 32]);
    int exponent = 0;
    std::frexp(v / decode, &exponent);
    const double half_code = std::ldexp(1.0, std::max(exponent - 1, -6) - 4) * decode * (1 + 0x1p-20);
    int own = 0;
    std::frexp(y, &own);
    ASSERT_LE(std::fabs(y - v), half_code + std::ldexp(1.0, own - 8)) << v;
  }
}

TEST(Mor, P40_ErrorsOfAGaussianAreThoseOfTheSheet) {
  const auto x = gaussian(1024 * 1024, 6);
  std::vector<Bf16> values(x.size());
  MorArgs args = args_of(x, 1024);
  const MorResult result = reference::mor(args, values.data(), nullptr);
  EXPECT_NEAR(result.error, 0.0225, 0.0005);
  EXPECT_EQ(result.tensor, MorChoice::kE4M3);
  const reference::MorBlock all{0, 1024, 0, 1024};
  const float scale = mor_scale(MorStrategy::kBlock, result.amax, result.amax, 57344.0f);
  EXPECT_NEAR(
      reference::mor_block_error(args, all, scale, Element::kE5M2) / static_cast<double>(result.non_zero),
      0.0449, 0.0005);
}

TEST(Mor, P40_AHeavyTailFallsBackInOneScaleAndNotInBlocks) {
  const auto x = gaussian(2048 * 2048, 7, 1.5);
  std::vector<Bf16> values(x.size());
  MorArgs args = args_of(x, 2048);
  EXPECT_EQ(reference::mor(args, values.data(), nullptr).tensor, MorChoice::kE4M3) << "128x128";
  args.block_rows = args.block_columns = 2048;
  EXPECT_EQ(reference::mor(args, values.data(), nullptr).tensor, MorChoice::kKeep) << "the whole tensor";
}

}  // namespace
}  // namespace tenon::kernels::mor_test
