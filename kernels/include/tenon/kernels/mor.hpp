// Mixture of representations (MoR, arXiv 2512.22804): which number format a tensor, or each block of it, can
// bear, and the scales under which that is tried. For host and device; the order of every operation is the
// published code's. Stated differences: the floor of a block's largest magnitude holds in every mode, zero
// decodes to zero under every scale, and blocks at the end of a matrix may be smaller.
#pragma once

#include <tenon/kernels/bf16.hpp>
#include <tenon/kernels/formats.hpp>

namespace tenon::kernels {

enum class MorStrategy : std::uint8_t { kGam = 0, kBlock = 1, kE8 = 2, kCurrent = 3 };
enum class MorMode : std::uint8_t { kTensor = 0, kQuantError = 1, kDynamicRange = 2 };
enum class MorChoice : std::uint8_t { kKeep = 0, kE4M3 = 1, kE5M2 = 2, kE2M3 = 3 };

/// Below it 448 / amax would leave the range of a float.
inline constexpr float kMorFloor = 1e-35f;
/// Largest ratio of magnitudes within a block that each format spans with normal numbers.
inline constexpr float kMorSpanE2M3 = 7.5f;
inline constexpr float kMorSpanE4M3 = 28672.0f;        ///< 448 / 2^-6
inline constexpr float kMorSpanE4M3Loose = 114688.0f;  ///< with two of the three subnormal binades
inline constexpr float kMorSpanE5M2 = 939524096.0f;    ///< 57344 / 2^-14

TENON_BOTH constexpr Element mor_element(MorChoice choice) noexcept {
  return choice == MorChoice::kE5M2   ? Element::kE5M2
         : choice == MorChoice::kE2M3 ? Element::kE2M3
                                      : Element::kE4M3;
}

/// Factor of elements. block_amax and tensor_amax are finite and not negative.
///   current  largest / A              block  largest / a_b
///   e8       the power of two at or below largest / a_b
///   gam      exponent of largest / a_b with the mantissa of largest / A, halved if that would exceed
///            largest / a_b: one mantissa per tensor, one exponent per block, and nothing saturates
TENON_BOTH constexpr float mor_scale(MorStrategy strategy, float block_amax, float tensor_amax,
                                     float largest) noexcept {
  const float own = largest / (block_amax > kMorFloor ? block_amax : kMorFloor);
  const auto own_bits = std::bit_cast<std::uint32_t>(own);
  if (strategy == MorStrategy::kBlock) return own;
  if (strategy == MorStrategy::kE8) return std::bit_cast<float>(own_bits & 0x7f800000u);
  const float whole = largest / (tensor_amax > kMorFloor ? tensor_amax : kMorFloor);
  if (strategy == MorStrategy::kCurrent) return whole;
  const std::uint32_t mantissa = std::bit_cast<std::uint32_t>(whole) & 0x7fffffu;
  const auto scale = std::bit_cast<float>((own_bits & 0x7f800000u) | mantissa);
  return mantissa > (own_bits & 0x7fffffu) ? scale * 0.5f : scale;
}

/// x through an 8-bit (6-bit) format under a scale: the value of the code, before it becomes a BF16.
TENON_BOTH constexpr float mor_round(float x, float scale, Element element) noexcept {
  return decode(encode(x * scale, element), element) / scale;
}

/// |y - x| / |x| of an element that is not zero.
TENON_BOTH constexpr float mor_error(float x, float y) noexcept {
  const float difference = y - x;
  return (difference < 0 ? -difference : difference) / (x < 0 ? -x : x);
}

/// BF16 of a finite float as the published code casts: nearest, ties away from zero.
TENON_BOTH constexpr Bf16 mor_bf16(float y) noexcept {
  return Bf16{static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(y) + 0x8000u) >> 16)};
}

/// Ratio of a block's largest magnitude to its smallest that is not zero; 1 for a block of zeros.
TENON_BOTH constexpr float mor_span(float amax, float smallest) noexcept {
  return amax > 0 ? amax / smallest : 1.0f;
}

/// Choice for a block by its span alone; kQuantError then compares errors where the answer is kE5M2.
TENON_BOTH constexpr MorChoice mor_by_span(float span, MorMode mode, bool e2m3) noexcept {
  if (e2m3 && span <= kMorSpanE2M3) return MorChoice::kE2M3;
  if (span <= (mode == MorMode::kQuantError ? kMorSpanE4M3Loose : kMorSpanE4M3)) return MorChoice::kE4M3;
  return span <= kMorSpanE5M2 ? MorChoice::kE5M2 : MorChoice::kKeep;
}

/// kQuantError between the two spans: E4M3 unless E5M2 is strictly better; then neither will do.
TENON_BOTH constexpr MorChoice mor_by_error(double error_e4m3, double error_e5m2) noexcept {
  return error_e4m3 <= error_e5m2 ? MorChoice::kE4M3 : MorChoice::kKeep;
}

/// A matrix [rows, columns], row-major, in blocks from row 0 and column 0.
struct MorArgs {
  const Bf16* x = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t block_rows = 128, block_columns = 128;  ///< at least 1
  MorStrategy strategy = MorStrategy::kGam;
  MorMode mode = MorMode::kTensor;
  double threshold = 0.045;
  bool e2m3 = false;
};

struct MorResult {
  MorChoice tensor = MorChoice::kKeep;  ///< kTensor
  std::int64_t blocks[4] = {0, 0, 0, 0};
  std::int64_t elements[4] = {0, 0, 0, 0};
  std::int64_t non_zero = 0;
  double error = 0;  ///< kTensor: of E4M3; else of what the blocks became. Mean over elements that are not 0.
  float amax = 0;
  bool finite = true;
};

/// Sums of errors: terms of one column within at most this many rows of a block are added in f32 from the
/// top; such sums in f64, columns from the left, then strips of rows from the top; blocks in f64 in row-major
/// order.
inline constexpr std::int64_t kMorStrip = 128;

/// Rows of a strip, all in one format, each column under a scale of its own. x is finite.
struct MorStripArgs {
  const Bf16* x = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
  Element element = Element::kE4M3;
  const float* scales = nullptr;  ///< per column
  float* errors = nullptr;  ///< per column, added to: |y - x| / |x| of elements that are not 0, from the top
  Bf16* out = nullptr;      ///< null to measure alone
  std::int64_t out_stride = 0;
};
struct MorOps {
  void (*strip)(const MorStripArgs& args);
};

}  // namespace tenon::kernels
