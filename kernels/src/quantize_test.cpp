// Block-scaled quantizers, the properties of one matrix: zero, infinity and tiny values, the largest element,
// symmetry, idempotence, blocks at the ends, packed codes, decoding. The order of operations:
// quantize_order_test.cpp.
#include <tenon/kernels/reference/quantize.hpp>

#include "quantizing.hpp"

namespace tenon::kernels::testing::quantize_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float ulp_of(float x) {
  return std::nextafter(std::abs(x), kInf) - std::abs(x);
}

TEST(Nvfp4Quantizer, P06_ZeroStaysZero) {
  const std::vector<float> x(64, 0.0f);
  for (const Format& format : {kNvfp4, kNvfp4Square, kMxfp4, kFp8, kFp8Block}) {
    const auto q = quantize_matrix(x, 2, 32, format);
    EXPECT_EQ(q.tensor.encode, 1.0f);
    EXPECT_EQ(q.codes, std::vector<std::uint8_t>(64, 0));
    for (const float y : q.decoded()) EXPECT_EQ(y, 0.0f);
  }
  EXPECT_EQ(quantize_matrix(x, 2, 32, kNvfp4).scales, std::vector<std::uint8_t>(4, 0));
}

TEST(Nvfp4Quantizer, P06_InfinityGivesTheScaleOne) {
  std::vector<float> x(32, 1.0f);
  x[3] = -kInf;
  const auto q = quantize_matrix(x, 1, 32, kNvfp4);
  EXPECT_EQ(q.tensor.encode, 1.0f);
  EXPECT_EQ(q.tensor.decode, 1.0f);
  EXPECT_EQ(q.scales[0], 0x7e);
  EXPECT_EQ(q.codes[3], 15);
  for (const float y : q.decoded()) EXPECT_FALSE(std::isnan(y));
}

TEST(Nvfp4Quantizer, P06_NanShowsInAllThatItsScaleReaches) {
  std::vector<float> x(32, 1.0f);
  x[20] = kNan;
  const auto q = quantize_matrix(x, 1, 32, kNvfp4);
  EXPECT_TRUE(std::isnan(q.tensor.decode));
  const auto fixed = quantize_with(reference_kernels(), x, 1, 32, kNvfp4, two_level_scale(1.0f));
  EXPECT_EQ(fixed.scales[1], 0x7f);
  const std::vector<float> decoded = fixed.decoded();
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(std::isnan(decoded[i]), i >= 16) << i;
  const auto mx = quantize_matrix(x, 1, 32, {.scaling = Scaling::kPower, .block_columns = 16});
  EXPECT_EQ(mx.scales, (std::vector<std::uint8_t>{125, 255}));
}

// The amax form of decoding (amax / 2688) is off by a factor of hundreds here.
TEST(Nvfp4Quantizer, P06_TinyTensorsDecodeToThemselves) {
  const std::vector<float> x = {1e-37f, -5e-38f};
  const auto q = quantize_matrix(x, 1, 2, kNvfp4);
  EXPECT_EQ(q.tensor.encode, kFloatMax);
  EXPECT_NEAR(q.decoded()[0], 1e-37f, 7e-39f);
  EXPECT_GT(
      std::abs(decode(q.codes[0], Element::kE2M1) * decode(q.scales[0], Element::kE4M3) * (1e-37f / 2688) -
               1e-37f),
      0.5e-37f);
  // Below 6 / FLT_MAX e_b is clamped as well: too small, yet no NaN.
  const auto tiny = quantize_matrix(std::vector<float>{1e-38f}, 1, 1, kNvfp4);
  EXPECT_NEAR(tiny.decoded()[0] / 1e-38f, 0.496f, 0.002f);
  for (const float smallest : {1e-45f, 1e-40f, 1.17e-38f})
    EXPECT_FALSE(std::isnan(quantize_matrix(std::vector<float>{smallest}, 1, 1, kNvfp4).decoded()[0]));
}

TEST(Nvfp4Quantizer, P07_TheLargestElementDecodesToItself) {
  std::mt19937 generator(7);
  for (int trial = 0; trial < 20000; ++trial) {
    const float exponent = std::uniform_real_distribution<float>(-114.0f, 127.9f)(generator);
    const float largest = std::exp2(exponent);
    if (largest < 3.2e-35f) continue;
    std::vector<float> x(32, largest / 3);
    x[5] = -largest;
    const auto q = quantize_matrix(x, 1, 32, kNvfp4);
    ASSERT_EQ(q.scales[0], 0x7e) << largest;
    ASSERT_EQ(q.codes[5], 15) << largest;
    ASSERT_LE(std::abs(q.decoded()[5] + largest), 2 * ulp_of(largest)) << largest;
  }
}

TEST(Nvfp4Quantizer, P08_ScaledElementsHardlyExceedSix) {
  std::mt19937 generator(8);
  float seen = 0;
  for (int trial = 0; trial < 200000; ++trial) {
    const TensorScale tensor = two_level_scale(1.0f + static_cast<float>(generator() % 1000));
    const float largest =
        std::exp2(-std::uniform_real_distribution<float>(0.0f, 12.0f)(generator)) * (2688 / tensor.encode);
    const std::uint8_t block = two_level_block(largest, tensor);
    if (block < 8) continue;  // subnormal
    const float scaled = largest * two_level_encode(block, tensor);
    ASSERT_LE(scaled, 6.375f * (1 + 0x1p-22f)) << largest;
    ASSERT_LE(clamp6(scaled), 6.0f);
    ASSERT_GE(clamp6(-scaled), -6.0f);
    seen = std::max(seen, scaled);
  }
  EXPECT_GT(seen, 6.34f);  // the bound is tight
}

const std::vector<Format>& symmetric_formats() {
  static const std::vector<Format> formats = {kNvfp4, kNvfp4Square, kNvfp4Down, kMxfp4,
                                              kMxfp8, kFp8,         kFp8Block};
  return formats;
}

TEST(Quantizers, P10_PowersOfTwoOnlyMoveTheScale) {
  const std::vector<float> x = random_values<float>(48 * 64, 10);
  for (const Format& format : {kNvfp4, kNvfp4Square, kNvfp4Down, kFp8}) {
    const auto q = quantize_matrix(x, 48, 64, format);
    for (const int k : {-20, -3, 1, 20}) {
      std::vector<float> scaled = x;
      for (float& value : scaled) value = std::ldexp(value, k);
      const auto p = quantize_matrix(scaled, 48, 64, format);
      EXPECT_EQ(p.codes, q.codes);
      EXPECT_EQ(p.scales, q.scales);
      EXPECT_EQ(p.tensor.decode, std::ldexp(q.tensor.decode, k));
    }
  }
}

TEST(Quantizers, P11_SignsAreSymmetric) {
  const std::vector<Bf16> x = random_values<Bf16>(48 * 64, 11);
  std::vector<Bf16> negative = x;
  for (Bf16& value : negative) value.bits ^= 0x8000;
  for (const Format& format : symmetric_formats()) {
    const auto q = quantize_matrix(x, 48, 64, format);
    const auto n = quantize_matrix(negative, 48, 64, format);
    const unsigned sign = 1u << (layout_of(format.element).bits - 1);
    for (std::size_t i = 0; i < q.codes.size(); ++i) ASSERT_EQ(n.codes[i], q.codes[i] ^ sign) << i;
    EXPECT_EQ(n.scales, q.scales);
    EXPECT_EQ(n.float_scales, q.float_scales);
  }
}

TEST(Nvfp4Quantizer, P13_QuantizingTwiceChangesNothing) {
  constexpr std::int64_t kRows = 256, kColumns = 1024;
  const std::vector<float> x = random_values<float>(kRows * kColumns, 13, -4, 4);
  for (const Format& format : {kNvfp4, kNvfp4Square}) {
    const auto q = quantize_matrix(x, kRows, kColumns, format);
    const std::vector<float> once = q.decoded();
    const auto twice = quantize_with(reference_kernels(), once, kRows, kColumns, format, q.tensor);
    const std::vector<float> again = twice.decoded();
    std::int64_t compared = 0;
    for (std::int64_t i = 0; i < kRows; ++i)
      for (std::int64_t j = 0; j < kColumns; ++j) {
        const std::size_t block = i / format.block_rows * (kColumns / 16) + j / 16;
        if (q.scales[block] < 8) continue;
        const std::size_t at = i * kColumns + j;
        ASSERT_EQ(again[at], once[at]) << i << " " << j;
        ++compared;
      }
    EXPECT_GT(compared, kRows * kColumns / 2);
  }
}

// Elements beyond the end count as zeros: a padded matrix has the same codes where both exist.
TEST(Quantizers, P30_PaddingChangesNothingInside) {
  constexpr std::int64_t kRows = 37, kColumns = 70, kPaddedRows = 48, kPaddedColumns = 128;
  const std::vector<Bf16> x = random_values<Bf16>(kRows * kColumns, 30);
  std::vector<Bf16> padded(kPaddedRows * kPaddedColumns, Bf16{0});
  for (std::int64_t i = 0; i < kRows; ++i)
    std::copy_n(x.begin() + i * kColumns, kColumns, padded.begin() + i * kPaddedColumns);
  std::vector<Format> formats = symmetric_formats();
  Format rotated = kNvfp4Down;
  rotated.rotate = true;
  formats.push_back(rotated);
  rotated.stochastic = true;
  formats.push_back(rotated);
  for (const Format& format : formats) {
    const auto q = quantize_matrix(x, kRows, kColumns, format);
    const auto p = quantize_matrix(padded, kPaddedRows, kPaddedColumns, format);
    EXPECT_EQ(q.rows, format.rotate ? 48 : 37);
    EXPECT_EQ(q.tensor.encode, p.tensor.encode);
    for (std::int64_t i = 0; i < q.rows; ++i)
      for (std::int64_t j = 0; j < kColumns; ++j) {
        ASSERT_EQ(q.codes[i * kColumns + j], p.codes[i * kPaddedColumns + j]) << i << " " << j;
        ASSERT_EQ(q.values[i * kColumns + j].bits, p.values[i * kPaddedColumns + j].bits);
      }
  }
}

// The rotated rows beyond the end are part of the product: with them it is that of the plain matrices.
TEST(Quantizers, P30_RotatedProductsAgreeOverThePaddedRows) {
  constexpr std::int64_t kRows = 21, kColumns = 4;
  const std::vector<Bf16> a = random_values<Bf16>(kRows * kColumns, 301),
                          b = random_values<Bf16>(kRows * kColumns, 302);
  const auto rotate = [](const std::vector<Bf16>& x) {
    std::vector<double> y(32 * kColumns);
    for (std::int64_t j = 0; j < kColumns; ++j)
      for (std::int64_t tile = 0; tile < 2; ++tile) {
        float v[16];
        reference::rotated_group(x.data(), kRows, kColumns, kColumns, true, tile * 16, j, v);
        for (std::int64_t e = 0; e < 16; ++e) y[(tile * 16 + e) * kColumns + j] = v[e];
      }
    return y;
  };
  const std::vector<double> ra = rotate(a), rb = rotate(b);
  for (std::int64_t n = 0; n < kColumns; ++n)
    for (std::int64_t k = 0; k < kColumns; ++k) {
      double plain = 0, rotated = 0, magnitude = 0;
      for (std::int64_t i = 0; i < kRows; ++i)
        plain += static_cast<double>(to_float(a[i * kColumns + n])) *
                 static_cast<double>(to_float(b[i * kColumns + k]));
      for (std::int64_t i = 0; i < 32; ++i) {
        const double term = ra[i * kColumns + n] * rb[i * kColumns + k];
        rotated += term;
        magnitude += std::abs(term);
      }
      EXPECT_NEAR(rotated, plain, magnitude * 2.1 * kBf16Roundoff) << n << " " << k;
    }
}

TEST(Quantizers, P05_PackedCodesAreThePlainOnes) {
  constexpr std::int64_t kRows = 35, kColumns = 21;  // odd: the last half byte is zero
  const std::vector<float> x = random_values<float>(kRows * kColumns, 5);
  for (const Format& format : {kNvfp4, kNvfp4Down, kNvfp4Square}) {
    const auto q = quantize_matrix(x, kRows, kColumns, format);
    std::vector<std::uint8_t> packed(kRows * 11, 0xff), scales(q.scales.size());
    QuantizeArgs<float> args = {.x = x.data(), .rows = kRows, .columns = kColumns, .stride = kColumns};
    args.block_rows = format.block_rows;
    args.block_columns = format.block_columns;
    args.tensor = q.tensor;
    args.codes = packed.data();
    args.codes_stride = 11;
    args.packed = true;
    args.scales = scales.data();
    args.scales_stride = (kColumns + format.block_columns - 1) / format.block_columns;
    reference_kernels().quantize_f32.quantize(args);
    EXPECT_EQ(scales, q.scales);
    for (std::int64_t i = 0; i < kRows; ++i)
      for (std::int64_t j = 0; j < 22; ++j) {
        const unsigned half = packed[i * 11 + j / 2] >> (j % 2 * 4) & 15u;
        ASSERT_EQ(half, j < kColumns ? q.codes[i * kColumns + j] : 0) << i << " " << j;
      }
    std::vector<Bf16> values(q.values.size());
    args.x = nullptr;
    args.values = values.data();
    args.values_stride = kColumns;
    reference_kernels().quantize_f32.dequantize(args);
    EXPECT_TRUE(same_bits(values, q.values));
  }
}

TEST(Quantizers, DecodingGivesTheValuesOfQuantizing) {
  constexpr std::int64_t kRows = 35, kColumns = 150;
  const std::vector<Bf16> x = random_values<Bf16>(kRows * kColumns, 55);
  std::vector<Format> formats = symmetric_formats();
  formats.push_back({.element = Element::kE5M2, .scaling = Scaling::kPower, .block_columns = 32});
  formats.push_back({.element = Element::kE2M3, .scaling = Scaling::kPower, .block_columns = 32});
  formats.push_back(
      {.element = Element::kE3M2, .scaling = Scaling::kPower, .block_rows = 32, .block_columns = 1});
  formats.push_back({.block_rows = 16, .block_columns = 1, .rotate = true});
  for (const Format& format : formats) {
    auto q = quantize_matrix(x, kRows, kColumns, format);
    std::vector<Bf16> values(q.values.size());
    QuantizeArgs<Bf16> args = {.rows = kRows, .columns = kColumns};
    args.element = format.element;
    args.scaling = format.scaling;
    args.rotate = format.rotate;
    args.block_rows = format.block_rows;
    args.block_columns = format.block_columns;
    args.codes = q.codes.data();
    args.codes_stride = args.values_stride = kColumns;
    args.scales = q.scales.data();
    args.scales_stride = (kColumns + format.block_columns - 1) / format.block_columns;
    args.values = values.data();
    reference_kernels().quantize_bf16.dequantize(args);
    EXPECT_TRUE(same_bits(values, q.values));
  }
}

TEST(Quantizers, ReportTheLargestMagnitude) {
  std::vector<float> x = random_values<float>(32 * 32, 56);
  for (const float largest : {-7.0f, kInf, kNan}) {
    x[500] = largest;
    std::uint32_t seen = 0;
    std::vector<std::uint8_t> codes(x.size());
    QuantizeArgs<float> args = {.x = x.data(), .rows = 32, .columns = 32, .stride = 32};
    args.codes = codes.data();
    args.codes_stride = 32;
    args.magnitude = &seen;
    args.scales_stride = 2;
    reference_kernels().quantize_f32.quantize(args);
    EXPECT_EQ(seen, magnitude_bits(largest));
    EXPECT_EQ(reference_kernels().quantize_f32.amax(x.data(), 32, 32, 32), magnitude_bits(largest));
  }
}

}  // namespace
}  // namespace tenon::kernels::testing::quantize_test
