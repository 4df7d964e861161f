// Conversion of weights: every rounding against a search for the nearest value.
#include "export_weights.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tenon::cli {
namespace {

double of_bf16(std::uint32_t bits) {
  return std::bit_cast<float>(bits << 16);
}

template <typename From, typename To>
To converted(DType from, From value, double factor, DType to) {
  const auto bytes = convert_elements(from, std::as_bytes(std::span(&value, 1)), factor, to);
  To result;
  EXPECT_EQ(bytes.size(), sizeof result);
  std::memcpy(&result, bytes.data(), sizeof result);
  return result;
}

std::uint16_t bf16(double value) {
  return converted<double, std::uint16_t>(DType::kF64, value, 1, DType::kBF16);
}

TEST(Conversion, RoundsDoublesToTheNearestBf16AtOnce) {
  // Neighbours, midpoints, and both sides of midpoints closer than a float can tell.
  for (const std::uint32_t bits : {0x0000u, 0x0001u, 0x007fu, 0x0080u, 0x3f80u, 0x3f81u, 0x4049u, 0x7f7eu}) {
    const double low = of_bf16(bits), high = of_bf16(bits + 1), middle = low + (high - low) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    EXPECT_EQ(bf16(low), bits);
    EXPECT_EQ(bf16(middle), even) << bits;
    EXPECT_EQ(bf16(std::nextafter(middle, 1e300)), bits + 1) << bits;
    EXPECT_EQ(bf16(std::nextafter(middle, -1e300)), bits) << bits;
    EXPECT_EQ(bf16(-std::nextafter(middle, 1e300)), 0x8000u | (bits + 1)) << bits;
  }
  EXPECT_EQ(bf16(1e39), 0x7f80) << "beyond the largest";
  EXPECT_EQ(bf16(-std::numeric_limits<double>::infinity()), 0xff80);
  EXPECT_TRUE(std::isnan(of_bf16(bf16(std::nan("")))));
}

TEST(Conversion, ScalesAndKeepsWhatFits) {
  EXPECT_EQ((converted<float, float>(DType::kF32, 3.0f, 0.5, DType::kF32)), 1.5f);
  EXPECT_EQ((converted<double, double>(DType::kF64, 0.1, 3, DType::kF64)), 0.1 * 3);
  EXPECT_EQ((converted<double, float>(DType::kF64, 0.1, 1, DType::kF32)), 0.1f);
  EXPECT_EQ((converted<std::uint16_t, float>(DType::kBF16, 0x3fc0, 1, DType::kF32)), 1.5f);
  const std::pair<std::uint16_t, float> halves[] = {{0x3c00, 1.0f},     {0xc000, -2.0f},
                                                    {0x0001, 0x1p-24f}, {0x03ff, 1023 * 0x1p-24f},
                                                    {0x7bff, 65504.0f}, {0x8000, -0.0f}};
  for (const auto& [bits, value] : halves)
    EXPECT_EQ((converted<std::uint16_t, float>(DType::kF16, bits, 1, DType::kF32)), value);
  EXPECT_TRUE(std::isinf(converted<std::uint16_t, float>(DType::kF16, 0x7c00, 1, DType::kF32)));
}

}  // namespace
}  // namespace tenon::cli
