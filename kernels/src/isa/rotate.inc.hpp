// The rotation of hadamard.hpp down 16 rows, 16 columns in lanes: first the sums, then the values from them.
#pragma once

#include <tenon/kernels/hadamard.hpp>

#include "isa/quantize_lanes.inc.hpp"

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
TENON_INLINE F rotated_value(F sum) {
  const I bits = bits_of(sum * splat(0.25f));
  return from_bits((bits + splat_int(0x7fff) + (shift_right(bits, 16) & splat_int(1))) & splat_int(-0x10000));
}
/// Largest magnitude of the values of 16 sums: rounding keeps their order, so only one is rounded.
TENON_INLINE I largest_rotated(const F (&sums)[kLanes]) {
  I largest = {};
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) largest = max_magnitude(largest, magnitudes(sums[i]));
  return bits_of(rounded_to_bf16(from_bits(largest) * splat(0.25f)));
}

/// 16 rows of 16 columns become their sums (hadamard.hpp).
TENON_INLINE void sum_rows(F (&v)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    if ((kHadamardSigns >> i & 1u) != 0) v[i] = from_bits(bits_of(v[i]) ^ splat_int(INT32_MIN));
#pragma GCC unroll 4
  for (int distance = 1; distance < kLanes; distance *= 2)
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if ((i & distance) != 0) continue;
      const F low = v[i], high = v[i + distance];
      v[i] = low + high;
      v[i + distance] = low - high;
    }
}

/// Sums of 16 rows of at most 16 columns, down the columns (hadamard.hpp); rows from `rows` on are zero.
template <class S>
TENON_INLINE void sum_down(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                           F (&v)[kLanes]) {
  for (int i = 0; i < kLanes; ++i) {
    v[i] = i < rows ? load_group(x + i * stride, columns) : splat(0.0f);
    if constexpr (sizeof(S) != sizeof(Bf16)) v[i] = rounded_to_bf16(v[i]);
  }
  sum_rows(v);
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
