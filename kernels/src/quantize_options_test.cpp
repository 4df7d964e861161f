// Options of the two-level quantizer: a scale per line, four over six; stochastic rounding of formats without
// blocks.
#include <tenon/kernels/stochastic.hpp>

#include "quantizing.hpp"

namespace tenon::kernels::testing::quantize_options_test {
namespace {

constexpr std::int64_t kRows = 48, kColumns = 80;

/// Lines of very different size.
std::vector<float> uneven(unsigned seed, bool down) {
  std::vector<float> x = random_values<float>(kRows * kColumns, seed);
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t j = 0; j < kColumns; ++j)
      x[i * kColumns + j] *= std::exp2(static_cast<float>((down ? j : i) % 13));
  return x;
}

TEST(LineScales, AreThoseOfEachLineAlone) {
  for (const bool down : {false, true}) {
    const std::vector<float> x = uneven(70, down);
    const Format format = down ? kNvfp4Down : kNvfp4;
    const std::int64_t lines = down ? kColumns : kRows, length = down ? kRows : kColumns;
    std::vector<TensorScale> scales;
    std::vector<std::vector<float>> parts;
    for (std::int64_t line = 0; line < lines; ++line) {
      std::vector<float> part;
      for (std::int64_t e = 0; e < length; ++e)
        part.push_back(x[down ? e * kColumns + line : line * kColumns + e]);
      scales.push_back(scale_for(kNvfp4, amax_of(reference_kernels(), part, 1, length, kNvfp4)));
      parts.push_back(std::move(part));
    }
    std::vector<std::uint8_t> codes(x.size()), block_scales(static_cast<std::size_t>(lines * length / 16));
    QuantizeArgs<float> args = {.x = x.data(), .rows = kRows, .columns = kColumns, .stride = kColumns};
    args.block_rows = format.block_rows;
    args.block_columns = format.block_columns;
    args.lines = scales.data();
    args.codes = codes.data();
    args.codes_stride = kColumns;
    args.scales = block_scales.data();
    args.scales_stride = kColumns / format.block_columns;
    reference_kernels().quantize_f32.quantize(args);
    for (std::int64_t line = 0; line < lines; ++line) {
      const auto q = quantize_matrix(parts[line], 1, length, kNvfp4);
      EXPECT_EQ(q.tensor.encode, scales[line].encode);
      for (std::int64_t e = 0; e < length; ++e) {
        const std::int64_t at = down ? e * kColumns + line : line * kColumns + e;
        const std::int64_t block = down ? e / 16 * kColumns + line : line * (kColumns / 16) + e / 16;
        ASSERT_EQ(codes[at], q.codes[e]) << line << " " << e;
        ASSERT_EQ(block_scales[block], q.scales[e / 16]);
      }
    }
  }
}

double squared_error(const std::vector<float>& decoded, const std::vector<float>& x, std::size_t begin,
                     std::size_t n) {
  double sum = 0;
  for (std::size_t i = begin; i < begin + n; ++i) {
    const double difference = static_cast<double>(decoded[i]) - static_cast<double>(x[i]);
    sum += difference * difference;
  }
  return sum;
}

// Each block takes the better of the two scales, compared with both forced by hand.
TEST(FourOverSix, TakesTheBetterOfTwoScales) {
  const std::vector<float> x = random_values<float>(kRows * kColumns, 71);
  Format format = kNvfp4;
  format.four_over_six = true;
  const auto q = quantize_matrix(x, kRows, kColumns, format);
  EXPECT_EQ(q.tensor.encode, 1536.0f / amax_of(reference_kernels(), x, kRows, kColumns, format));
  const std::vector<float> decoded = q.decoded();
  std::int64_t fours = 0;
  for (std::size_t block = 0; block < q.scales.size(); ++block) {
    float largest = 0;
    for (std::size_t e = 0; e < 16; ++e) largest = std::max(largest, std::abs(x[block * 16 + e]));
    const std::uint8_t six = four_over_six_block(largest, q.tensor, false);
    const std::uint8_t four = four_over_six_block(largest, q.tensor, true);
    ASSERT_TRUE(q.scales[block] == six || q.scales[block] == four);
    fours += q.scales[block] == four ? 1 : 0;
    const double error = squared_error(decoded, x, block * 16, 16);
    for (const std::uint8_t scale : {six, four}) {
      std::vector<float> forced(x.size());
      for (std::size_t i = block * 16; i < block * 16 + 16; ++i)
        forced[i] =
            decode(encode(clamp6(x[i] * two_level_encode(scale, q.tensor)), Element::kE2M1), Element::kE2M1) *
            decode(scale, Element::kE4M3) * q.tensor.decode;
      ASSERT_LE(error, squared_error(forced, x, block * 16, 16) * (1 + 1e-5)) << block;
    }
  }
  // Both occur, and the whole is closer than with 6 alone.
  EXPECT_GT(fours, 20);
  EXPECT_LT(fours, static_cast<std::int64_t>(q.scales.size()) - 20);
  EXPECT_LT(squared_error(decoded, x, 0, x.size()),
            squared_error(quantize_matrix(x, kRows, kColumns, kNvfp4).decoded(), x, 0, x.size()));
}

TEST(FourOverSix, EqualErrorsKeepSix) {
  const std::vector<float> x(16, 1.0f);  // exact under both
  Format format = kNvfp4;
  format.four_over_six = true;
  const auto q = quantize_matrix(x, 1, 16, format);
  EXPECT_EQ(decode(q.scales[0], Element::kE4M3), 256.0f);
  EXPECT_EQ(q.codes[0], 7);
}

// Groups of draws run along columns for square blocks and whole matrices.
TEST(StochasticFormats, DrawAlongColumnsWithoutBlocks) {
  const std::vector<float> x = random_values<float>(kRows * kColumns, 72, -200, 200);
  for (Format format : {kFp8, kNvfp4Square, kMxfp8}) {
    format.stochastic = true;
    format.random_bits = 24;
    format.key = 3;
    const auto q = quantize_matrix(x, kRows, kColumns, format);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i) / kColumns,
                         column = static_cast<std::int64_t>(i) % kColumns;
      float scaled = x[i] * q.tensor.encode;
      if (format.scaling == Scaling::kTwoLevel)
        scaled =
            clamp6(x[i] * two_level_encode(q.scales[row / 16 * (kColumns / 16) + column / 16], q.tensor));
      if (format.scaling == Scaling::kPower) scaled = x[i] * inverse_e8m0(q.scales[row * 3 + column / 32]);
      ASSERT_EQ(q.codes[i], encode_stochastic24(scaled, format.element,
                                                draw_of({.key = 3}, static_cast<std::uint64_t>(column),
                                                        static_cast<std::uint64_t>(row), 24)))
          << i;
    }
  }
}

}  // namespace
}  // namespace tenon::kernels::testing::quantize_options_test
