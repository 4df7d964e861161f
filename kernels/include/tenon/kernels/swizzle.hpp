// The layout in which FP4 and MX products of Blackwell GPUs read block scales: [outer, inner] bytes in tiles
// of 128 x 4, within a tile 32 x (4 x 4) (cuBLAS "VEC16_UE4M3", torchao's to_blocked). Padding is zero.
// Swizzle after communication: swizzled shards cannot be joined.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

TENON_BOTH constexpr std::int64_t swizzled_outer(std::int64_t outer) noexcept {
  return (outer + 127) / 128 * 128;
}
TENON_BOTH constexpr std::int64_t swizzled_inner(std::int64_t inner) noexcept {
  return (inner + 3) / 4 * 4;
}

/// Byte offset of scale (o, i) with `inner` scales in a row.
TENON_BOTH constexpr std::int64_t swizzled_offset(std::int64_t o, std::int64_t i,
                                                  std::int64_t inner) noexcept {
  return ((o / 128) * swizzled_inner(inner) + (i / 4) * 4) * 128 + (o % 32) * 16 + (o % 128) / 32 * 4 + i % 4;
}

/// `out` has swizzled_outer(outer) * swizzled_inner(inner) bytes; all are written.
constexpr void swizzle_scales(const std::uint8_t* scales, std::int64_t outer, std::int64_t inner,
                              std::uint8_t* out) noexcept {
  for (std::int64_t o = 0; o < swizzled_outer(outer); ++o)
    for (std::int64_t i = 0; i < swizzled_inner(inner); ++i)
      out[swizzled_offset(o, i, inner)] = o < outer && i < inner ? scales[o * inner + i] : std::uint8_t{0};
}

constexpr void unswizzle_scales(const std::uint8_t* swizzled, std::int64_t outer, std::int64_t inner,
                                std::uint8_t* scales) noexcept {
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) scales[o * inner + i] = swizzled[swizzled_offset(o, i, inner)];
}

}  // namespace tenon::kernels
