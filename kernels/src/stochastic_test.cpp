// Stochastic rounding: neighbours, bias, and draws that depend on seed, step and global position alone.
#include <tenon/kernels/stochastic.hpp>

#include "quantizing.hpp"

namespace tenon::kernels::testing::stochastic_test {
namespace {

constexpr Element kElements[] = {Element::kE2M1, Element::kE2M3, Element::kE3M2, Element::kE4M3,
                                 Element::kE5M2};

float rounded(float x, Element element, std::uint32_t draw, int bits) {
  return decode(encode_stochastic(x, element, draw, bits), element);
}

TEST(StochasticRounding, P22_GridPointsStay) {
  for (const Element element : kElements)
    for (unsigned code = 0; code <= layout_of(element).largest_code; ++code) {
      const auto byte = static_cast<std::uint8_t>(code);
      for (std::uint32_t draw = 0; draw < 256; ++draw) {
        ASSERT_EQ(encode_stochastic8(decode(byte, element), element, draw), byte) << code << " " << draw;
        ASSERT_EQ(encode_stochastic24(decode(byte, element), element, draw * 0x10101u), byte) << code;
      }
      ASSERT_EQ(encode_stochastic24(decode(byte, element), element, 0xffffffu), byte) << code;
    }
}

TEST(StochasticRounding, P22_GivesOneOfTheTwoNeighbours) {
  std::mt19937 generator(22);
  for (const Element element : kElements) {
    const ElementLayout layout = layout_of(element);
    for (int trial = 0; trial < 100000; ++trial) {
      const float x = std::uniform_real_distribution<float>(-1, 1)(generator) * layout.largest *
                      std::exp2(static_cast<float>(trial % 20) * -1.5f);
      const std::uint8_t below = encode(x, element, Rounding::kTowardZero);
      for (const int bits : {8, 24}) {
        const std::uint8_t code =
            encode_stochastic(x, element, static_cast<std::uint32_t>(generator()), bits);
        ASSERT_TRUE(code == below || code == below + 1) << x << " " << bits;
      }
    }
    for (std::uint32_t draw = 0; draw < 256; ++draw)
      for (const float beyond :
           {layout.largest, layout.largest * 1.2f, std::numeric_limits<float>::infinity()}) {
        ASSERT_EQ(encode_stochastic8(beyond, element, draw), layout.largest_code);
        ASSERT_EQ(encode_stochastic24(-beyond, element, draw << 16), encode(-layout.largest, element));
      }
  }
  EXPECT_EQ(encode_stochastic8(std::numeric_limits<float>::quiet_NaN(), Element::kE2M1, 255), 7);
  EXPECT_EQ(encode_stochastic24(std::numeric_limits<float>::quiet_NaN(), Element::kE4M3, 255), 0x7f);
  EXPECT_EQ(encode_stochastic8(-1e-30f, Element::kE2M1, 255), 8);
  EXPECT_EQ(encode_stochastic24(-1e-30f, Element::kE2M1, 0xffffff), 8);
}

// floor(256 f) of all 256 words round up; exactly 2^24 f of all 2^24 words.
TEST(StochasticRounding, P23_CountsOfAllWords) {
  for (const float f : {0.0f, 0.001f, 0.25f, 0.3f, 0.5f, 0.99609375f, 0.999f})
    for (const float cell : {0.0f, 1.5f, 2.0f, 4.0f}) {
      const float step = cell < 2 ? 0.5f : cell < 4 ? 1.0f : 2.0f;
      const float x = cell + f * step;
      const double exact = (static_cast<double>(x) - static_cast<double>(cell)) / static_cast<double>(step);
      int up = 0;
      for (std::uint32_t draw = 0; draw < 256; ++draw)
        up += rounded(x, Element::kE2M1, draw, 8) > cell ? 1 : 0;
      EXPECT_EQ(up, static_cast<int>(std::floor(exact * 256))) << x;
      const auto needed = static_cast<std::uint32_t>(0x1000000 - std::floor(exact * 0x1p24));
      if (needed < 0x1000000) {
        EXPECT_GT(rounded(x, Element::kE2M1, needed, 24), cell) << x;
        EXPECT_EQ(rounded(x, Element::kE2M1, needed - 1, 24), cell) << x;
      } else {
        EXPECT_EQ(rounded(x, Element::kE2M1, 0xffffff, 24), cell) << x;
      }
    }
}

/// |mean - x| over n draws against the bound; `bits` 0: to nearest.
bool unbiased(float x, float step, int bits, int n) {
  const DrawStream stream = {.key = 23, .step = 1};
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    const auto position = static_cast<std::uint64_t>(i);
    sum +=
        static_cast<double>(bits == 0 ? decode(encode(x, Element::kE2M1), Element::kE2M1)
                                      : rounded(x, Element::kE2M1, draw_of(stream, position, 7, bits), bits));
  }
  const double bound = (bits == 24 ? 0.0 : step / 256.0) + 5 * step / (2 * std::sqrt(n));
  return std::abs(sum / n - static_cast<double>(x)) <= bound;
}

TEST(StochasticRounding, P23_IsUnbiased) {
  for (const float f : {0.02f, 0.3f, 0.5f, 0.77f, 0.98f})
    for (const auto& [cell, step] : {std::pair{0.0f, 0.5f}, {1.0f, 0.5f}, {2.0f, 1.0f}, {4.0f, 2.0f}})
      for (const float sign : {1.0f, -1.0f})
        for (const int bits : {8, 24})
          EXPECT_TRUE(unbiased(sign * (cell + f * step), step, bits, 20000)) << f;
}

// Negative control.
TEST(StochasticRounding, P23_RoundingToNearestIsNot) {
  EXPECT_FALSE(unbiased(0.3f * 0.5f, 0.5f, 0, 100));
  EXPECT_FALSE(unbiased(2.3f, 1.0f, 0, 100));
}

constexpr std::int64_t kRows = 64, kColumns = 96;

Format stochastic(std::uint64_t step, std::uint64_t key = 5, std::uint32_t micro = 0, int bits = 8) {
  Format format = kNvfp4;
  format.stochastic = true;
  format.key = key;
  format.step = step;
  format.micro = micro;
  format.random_bits = bits;
  return format;
}

double rmse(const std::vector<double>& y, const std::vector<float>& x) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += std::pow(y[i] - static_cast<double>(x[i]), 2);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

TEST(StochasticRounding, P24_MeanOfFiftyDrawsBeatsRoundingToNearest) {
  const std::vector<float> x = random_values<float>(kRows * kColumns, 24);
  const auto nearest = quantize_matrix(x, kRows, kColumns, kNvfp4).decoded();
  const double error = rmse({nearest.begin(), nearest.end()}, x);
  for (const int bits : {8, 24}) {
    std::vector<double> mean(x.size(), 0.0);
    for (std::uint64_t step = 0; step < 50; ++step) {
      const auto y = quantize_matrix(x, kRows, kColumns, stochastic(step, 5, 0, bits)).decoded();
      for (std::size_t i = 0; i < y.size(); ++i) mean[i] += static_cast<double>(y[i]) / 50;
    }
    EXPECT_LT(rmse(mean, x), error / 2) << bits;
  }
}

TEST(StochasticRounding, P24_DrawsAreFunctionsOfSeedStepAndPosition) {
  const std::vector<float> x = random_values<float>(kRows * kColumns, 25);
  const auto codes = [&](const Format& format) { return quantize_matrix(x, kRows, kColumns, format).codes; };
  const auto first = codes(stochastic(1));
  EXPECT_EQ(codes(stochastic(1)), first);
  EXPECT_NE(codes(stochastic(2)), first);
  EXPECT_NE(codes(stochastic(1, 6)), first);
  EXPECT_NE(codes(stochastic(1, 5 | std::uint64_t{1} << 40)), first);
  EXPECT_NE(codes(stochastic(1, 5, 1)), first);
  Format moved = stochastic(1);
  moved.origin_row = 16;
  EXPECT_NE(codes(moved), first);
}

// The layout of quantize.hpp, written out with Random123 for both directions of blocks.
TEST(StochasticRounding, P24_DrawsFollowTheWrittenLayout) {
  const auto words = [](std::uint32_t group, std::uint32_t line, std::uint32_t part) {
    return r123::Philox4x32{}({{group, line, 77u, 3u * 4 + part}}, {{0xdeadbeefu, 0x12345678u}});
  };
  const DrawStream stream = {.key = 0x12345678deadbeefu, .step = 77, .micro = 3};
  for (const std::uint64_t along : {0u, 5u, 14u, 16u, 4711u})
    for (const std::uint64_t line : {0u, 9u, 100000u}) {
      const auto group = static_cast<std::uint32_t>(along / 16), row = static_cast<std::uint32_t>(line);
      const auto e = static_cast<std::uint32_t>(along % 16);
      EXPECT_EQ(draw_of(stream, along, line, 8), words(group, row, 0)[e / 4] >> (e % 4 * 8) & 0xffu);
      EXPECT_EQ(draw_of(stream, along, line, 24), words(group, row, e / 4)[e % 4] & 0xffffffu);
    }
  const std::vector<float> x(32 * 32, 0.7f);  // one block scale, so that codes show draws
  for (const bool down : {false, true}) {
    Format format = down ? kNvfp4Down : kNvfp4;
    format.stochastic = true;
    format.key = stream.key;
    format.step = stream.step;
    format.micro = stream.micro;
    format.origin_row = 160;
    format.origin_column = 48;
    const auto q = quantize_with(reference_kernels(), x, 32, 32, format, two_level_scale(1.0f));
    for (std::uint64_t i = 0; i < 32; ++i)
      for (std::uint64_t j = 0; j < 32; ++j) {
        const std::uint32_t draw =
            down ? draw_of(stream, 160 + i, 48 + j, 8) : draw_of(stream, 48 + j, 160 + i, 8);
        const float scaled = clamp6(0.7f * two_level_encode(q.scales[0], q.tensor));
        ASSERT_EQ(q.codes[i * 32 + j], encode_stochastic8(scaled, Element::kE2M1, draw)) << i << " " << j;
      }
  }
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  double ma = 0, mb = 0, ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ma += a[i] / n;
    mb += b[i] / n;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - ma) * (b[i] - mb);
    aa += (a[i] - ma) * (a[i] - ma);
    bb += (b[i] - mb) * (b[i] - mb);
  }
  return ab / std::sqrt(aa * bb);
}

// Also under one key: the counter of element (i, j) is {j / 16, i} across and {i / 16, j} down.
TEST(StochasticRounding, P25_StreamsAcrossAndDownAreUncorrelated) {
  constexpr std::uint64_t kSide = 512;
  for (const int bits : {8, 24})
    for (const std::uint64_t other : {5u, 6u}) {
      std::vector<double> across, down, next;
      for (std::uint64_t i = 0; i < kSide; ++i)
        for (std::uint64_t j = 0; j < kSide; ++j) {
          across.push_back(draw_of({.key = 5, .step = 9}, j, i, bits));
          down.push_back(draw_of({.key = other, .step = 9}, i, j, bits));
          next.push_back(draw_of({.key = 5, .step = 10}, j, i, bits));
        }
      const double bound = 4 / std::sqrt(static_cast<double>(kSide * kSide));
      EXPECT_LT(std::abs(correlation(across, down)), bound) << bits << " " << other;
      EXPECT_LT(std::abs(correlation(across, next)), bound) << bits;
      EXPECT_GT(correlation(across, across), 0.999);
    }
}

}  // namespace
}  // namespace tenon::kernels::testing::stochastic_test
