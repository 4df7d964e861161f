// The randomised Hadamard transform of 16 elements, y = x diag(s) H with H = Sylvester / 4 (arXiv 2509.25149,
// 4.2): in float, signs first, then butterflies over distances 1, 2, 4, 8, then times 1/4, then rounded to
// bfloat16. This order is the definition for host and device; the vector kernels produce the same bits.
#pragma once

#include <tenon/kernels/bf16.hpp>

namespace tenon::kernels {

/// Bit i is set where s_i = -1; the one sign vector of all layers and runs (TransformerEngine's).
inline constexpr std::uint32_t kHadamardSigns = 0xD7E8u;

/// v becomes v diag(s) H, each value rounded to bfloat16. v holds bfloat16 values.
TENON_BOTH constexpr void rotate16(float* v) noexcept {
  for (int i = 0; i < 16; ++i)
    if ((kHadamardSigns >> i & 1u) != 0) v[i] = -v[i];
  for (int distance = 1; distance < 16; distance *= 2)
    for (int i = 0; i < 16; ++i) {
      if ((i & distance) != 0) continue;
      const float a = v[i], b = v[i + distance];
      v[i] = a + b;
      v[i + distance] = a - b;
    }
  for (int i = 0; i < 16; ++i) v[i] = to_float(to_bf16(v[i] * 0.25f));
}

}  // namespace tenon::kernels
