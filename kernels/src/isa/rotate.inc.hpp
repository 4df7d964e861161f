// The rotation of hadamard.hpp down 16 rows, 16 columns in lanes: first the sums, then the values from them.
#pragma once

#include <tenon/kernels/hadamard.hpp>

#include "isa/quantize_words.inc.hpp"

namespace tenon::kernels {
namespace {

/// Nearest even; NaN stays NaN.
TENON_INLINE F rounded_to_bf16(F a) {
  const I bits = bits_of(a);
  const I rounded = bits + splat_int(0x7fff) + (shift_right(bits, 16) & splat_int(1));
  const I nan = splat_int(kExponentBits) < magnitudes(a);
  return from_bits(select(nan, bits | splat_int(0x00400000), rounded) & splat_int(-0x10000));
}

/// The last step of a rotation (hadamard.hpp), of sums that are finite.
TENON_INLINE Part rotated_value(Part sum) {
  const auto bits = (IntPart)(sum * splat_part(0.25f));
  const IntPart odd = right_logical(bits, 16) & splat_part(1);
  return (Part)(add_bits(add_bits(bits, splat_part(0x7fff)), odd) & splat_part(-0x10000));
}
TENON_INLINE F rotated_value(F sum) {
  return each<F>([&](int p) { return rotated_value(sum.v[p]); });
}
/// Bits of the magnitudes of the values of sums of these magnitudes.
TENON_INLINE I magnitude_of_sum(I magnitude) {
  return bits_of(rounded_to_bf16(from_bits(magnitude) * splat(0.25f)));
}
/// Largest magnitude of the values of 16 sums: rounding keeps their order, so only one is rounded.
TENON_INLINE I largest_rotated(const F (&sums)[kLanes]) {
  I largest = {};
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) largest = max_magnitude(largest, magnitudes(sums[i]));
  return magnitude_of_sum(largest);
}

/// -a - b.
TENON_INLINE Part negative_sum(Part a, Part b) {
#if TENON_SIMD_BYTES == 64
  return (Part)_mm512_fnmsub_ps((__m512)a, (__m512)splat_part(1.0f), (__m512)b);
#elif TENON_SIMD_BYTES == 32
  return (Part)_mm256_fnmsub_ps((__m256)a, (__m256)splat_part(1.0f), (__m256)b);
#else
  return (Part)((IntPart)a ^ splat_part(INT32_MIN)) - b;
#endif
}
/// Sums and differences of 16 rows (hadamard.hpp) at distances 1, 2, 4 up to `kLast`. Signs are those of the
/// first operations.
template <int kLast>
TENON_INLINE void sum_rows_to(Part (&v)[kLanes]) {
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i += 2) {
    const bool low_turns = (kHadamardSigns >> i & 1u) != 0,
               high_turns = (kHadamardSigns >> (i + 1) & 1u) != 0;
    const Part low = v[i], high = v[i + 1];
    const Part sum = low_turns ? negative_sum(low, high) : low + high;
    const Part difference = low_turns ? high - low : low - high;
    v[i] = low_turns == high_turns ? sum : difference;
    v[i + 1] = low_turns == high_turns ? difference : sum;
  }
#pragma GCC unroll 4
  for (int distance = 2; distance <= kLast; distance *= 2)
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if ((i & distance) != 0) continue;
      const Part low = v[i], high = v[i + distance];
      v[i] = low + high;
      v[i + distance] = low - high;
    }
}
/// 16 rows become their sums.
TENON_INLINE void sum_rows(Part (&v)[kLanes]) {
  sum_rows_to<kLanes / 2>(v);
}
/// Magnitudes of the largest of the 16 sums. The larger of |a + b| and |a - b| is |a| + |b|. Where something
/// is not finite the result is not either.
TENON_INLINE IntPart largest_sum(Part (&v)[kLanes]) {
  sum_rows_to<kLanes / 4>(v);
  const auto magnitude = [](Part x) TENON_BODY { return (Part)((IntPart)x & splat_part(0x7fffffff)); };
  IntPart largest = {};
#pragma GCC unroll 8
  for (int i = 0; i < kLanes / 2; ++i)
    largest = larger_bits(largest, (IntPart)(magnitude(v[i]) + magnitude(v[i + kLanes / 2])));
  return largest;
}

/// Sums of 16 rows of at most 16 columns, down the columns (hadamard.hpp); rows from `rows` on are zero.
template <class S>
TENON_INLINE void sum_down(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                           F (&v)[kLanes]) {
  for (int i = 0; i < kLanes; ++i) {
    v[i] = i < rows ? load_group(x + i * stride, columns) : splat(0.0f);
    if constexpr (sizeof(S) != sizeof(Bf16)) v[i] = rounded_to_bf16(v[i]);
  }
  for (int p = 0; p < kParts; ++p) {
    Part part[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) part[i] = v[i].v[p];
    sum_rows(part);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i].v[p] = part[i];
  }
}
template <class S>
TENON_INLINE void rotate_down(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                              F (&v)[kLanes]) {
  if (rows >= kLanes && columns >= kLanes)
    sum_down(x, kLanes, kLanes, stride, v);  // without a test per row
  else
    sum_down(x, rows, columns, stride, v);
}

}  // namespace
}  // namespace tenon::kernels
