// Square blocks (weights) and shards: effects of transposition and splitting on codes and scales.
#include "quantizing.hpp"

namespace tenon::kernels::testing::quantize_square_test {
namespace {

constexpr std::int64_t kRows = 128, kColumns = 160;

template <class T>
std::vector<T> transposed(const std::vector<T>& x, std::int64_t rows, std::int64_t columns) {
  std::vector<T> y(x.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) y[j * rows + i] = x[i * columns + j];
  return y;
}

bool transposition_agrees(const Format& format) {
  const std::vector<Bf16> w = random_values<Bf16>(kRows * kColumns, 14);
  const auto q = quantize_matrix(w, kRows, kColumns, format);
  const auto t = quantize_matrix(transposed(w, kRows, kColumns), kColumns, kRows, format);
  return bool(same_bits(t.values, transposed(q.values, kRows, kColumns)));
}

TEST(Nvfp4Weights, P14_SquareBlocksCommuteWithTransposition) {
  EXPECT_TRUE(transposition_agrees(kNvfp4Square));
}

// Negative control.
TEST(Nvfp4Weights, P14_RowBlocksDoNotCommuteWithTransposition) {
  EXPECT_FALSE(transposition_agrees(kNvfp4));
}

TEST(Nvfp4Weights, P14_BlocksDownAreBlocksAcrossTheTransposed) {
  const std::vector<Bf16> w = random_values<Bf16>(kRows * kColumns, 15);
  for (const bool rotate : {false, true}) {
    Format down = kNvfp4Down, across = kNvfp4;
    down.rotate = across.rotate = rotate;
    const auto q = quantize_matrix(w, kRows, kColumns, down);
    const auto t = quantize_matrix(transposed(w, kRows, kColumns), kColumns, kRows, across);
    EXPECT_EQ(q.tensor.encode, t.tensor.encode);
    EXPECT_EQ(transposed(q.codes, kRows, kColumns), t.codes);
    EXPECT_EQ(transposed(q.scales, kRows / 16, kColumns), t.scales);
  }
}

// The byte of a tile, written out for each of its 16 rows, is what 1x16 blocks with that scale would use.
TEST(Nvfp4Weights, P16_AllRowsOfATileShareTheirScale) {
  const std::vector<Bf16> w = random_values<Bf16>(kRows * kColumns, 16);
  const auto q = quantize_matrix(w, kRows, kColumns, kNvfp4Square);
  ASSERT_EQ(q.scales.size(), static_cast<std::size_t>(kRows / 16 * kColumns / 16));
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const std::uint8_t scale = q.scales[i / 16 * (kColumns / 16) + j / 16];
      const std::size_t at = i * kColumns + j;
      ASSERT_EQ(q.codes[at],
                encode(clamp6(to_float(w[at]) * two_level_encode(scale, q.tensor)), Element::kE2M1));
      ASSERT_EQ(to_float(q.values[at]), decode(q.codes[at], Element::kE2M1) * decode(scale, Element::kE4M3));
    }
}

TEST(Shards, P31_LargestOfShardsIsTheWholesAndSoAreTheCodes) {
  std::vector<float> x = random_values<float>(kRows * kColumns, 31);
  x[4321] = 9.25f;
  for (const Format& format : {kNvfp4, kNvfp4Square, kFp8}) {
    const auto whole = quantize_matrix(x, kRows, kColumns, format);
    for (const std::int64_t ranks : {1, 2, 4, 8}) {
      const std::int64_t rows = kRows / ranks;
      std::uint32_t largest = 0;
      for (std::int64_t r = 0; r < ranks; ++r)
        largest = std::max(largest, reference_kernels().quantize_f32.amax(x.data() + r * rows * kColumns,
                                                                          rows, kColumns, kColumns));
      EXPECT_EQ(std::bit_cast<float>(largest), amax_of(reference_kernels(), x, kRows, kColumns, format));
      std::vector<std::uint8_t> codes;
      for (std::int64_t r = 0; r < ranks; ++r) {
        const std::vector<float> shard(x.begin() + r * rows * kColumns,
                                       x.begin() + (r + 1) * rows * kColumns);
        const auto q = quantize_with(reference_kernels(), shard, rows, kColumns, format,
                                     scale_for(format, std::bit_cast<float>(largest)));
        codes.insert(codes.end(), q.codes.begin(), q.codes.end());
      }
      EXPECT_EQ(codes, whole.codes) << ranks;
    }
  }
}

// Split at multiples of 16 in both dimensions, with stochastic rounding too: draws follow the global
// position.
TEST(Shards, P32_QuantizingAndGatheringCommute) {
  const std::vector<float> x = random_values<float>(kRows * kColumns, 32);
  std::vector<Format> formats = {kNvfp4, kNvfp4Square, kNvfp4Down};
  for (Format format : {kNvfp4, kNvfp4Square, kNvfp4Down}) {
    format.stochastic = true;
    format.key = 99;
    formats.push_back(format);
    format.random_bits = 24;
    formats.push_back(format);
  }
  for (const Format& format : formats) {
    const auto whole = quantize_matrix(x, kRows, kColumns, format);
    for (const auto& [row, column, rows, columns] : {std::array<std::int64_t, 4>{0, 0, 48, 160},
                                                     {48, 0, 48, 160},
                                                     {32, 64, 64, 96},
                                                     {16, 144, 16, 16}}) {
      std::vector<float> shard;
      for (std::int64_t i = row; i < row + rows; ++i)
        shard.insert(shard.end(), x.begin() + i * kColumns + column,
                     x.begin() + i * kColumns + column + columns);
      Format local = format;
      local.origin_row = row;
      local.origin_column = column;
      const auto q = quantize_with(reference_kernels(), shard, rows, columns, local, whole.tensor);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
          ASSERT_EQ(q.codes[i * columns + j], whole.codes[(row + i) * kColumns + column + j])
              << i << " " << j;
    }
  }
}

}  // namespace
}  // namespace tenon::kernels::testing::quantize_square_test
