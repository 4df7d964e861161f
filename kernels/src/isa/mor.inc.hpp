// The inner loop of MoR (mor.hpp): a strip of rows through an 8-bit (6-bit) format under a scale per column,
// with running sums of relative errors. Equals the reference bit for bit; accepts finite numbers only.
#pragma once

#include <tenon/kernels/mor.hpp>

#include "isa/quantize_lanes.inc.hpp"
#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

/// Rounding of a magnitude to a format of few bits; the same as decode(encode(x)). In variables, because one
/// loop serves all formats.
struct MorGrid {
  int drop;
  std::int32_t half, mask, normal, largest;
  float magic;  ///< added and subtracted, it leaves multiples of the smallest subnormal
};

template <Element kElement>
constexpr MorGrid make_mor_grid() {
  constexpr ElementLayout kLayout = layout_of(kElement);
  constexpr int kDrop = 23 - kLayout.mantissa;
  return {.drop = kDrop,
          .half = (1 << (kDrop - 1)) - 1,
          .mask = -(1 << kDrop),
          .normal = (128 - kLayout.bias) << 23,
          .largest = __builtin_bit_cast(std::int32_t, kLayout.largest),
          .magic = __builtin_bit_cast(float, (128 - kLayout.bias + 23 - kLayout.mantissa) << 23)};
}
template <Element kElement>
constexpr MorGrid kMorGrid = make_mor_grid<kElement>();

TENON_INLINE MorGrid mor_grid(Element element) {
  if (element == Element::kE5M2) return kMorGrid<Element::kE5M2>;
  if (element == Element::kE2M3) return kMorGrid<Element::kE2M3>;
  return kMorGrid<Element::kE4M3>;
}

struct MorRounded {
  F value, error;
};

TENON_INLINE MorRounded mor_round_lanes(const MorGrid& grid, F x, F scale) {
  const I bits = bits_of(x * scale), magnitude = bits & splat_int(0x7fffffff);
  const F small = (from_bits(magnitude) + splat(grid.magic)) - splat(grid.magic);
  const I odd = shift_right_logical(magnitude, grid.drop) & splat_int(1);
  const I rounded = (magnitude + splat_int(grid.half) + odd) & splat_int(grid.mask);
  I code = select(magnitude < splat_int(grid.normal), bits_of(small), rounded);
  code = select(splat_int(grid.largest) < code, splat_int(grid.largest), code);
  const F value = from_bits(code | (bits & splat_int(INT32_MIN))) / scale;
  const F size = abs(x);
  return {value, abs(value - x) / select(size == splat(0.0f), splat(1.0f), size)};
}

void mor_strip(const MorStripArgs& a) {
  const MorGrid grid = mor_grid(a.element);
  for_lanes(0, a.columns, [&](std::int64_t j, std::int64_t n) TENON_BODY {
    const F scale = load_group(a.scales + j, n);
    F errors = load_group(a.errors + j, n);
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const std::int64_t place = row * a.stride + j;
      const MorRounded rounded = mor_round_lanes(grid, load_group(a.x + place, n), scale);
      errors = errors + rounded.error;
      // As mor_bf16: ties away from zero.
      if (a.out != nullptr)
        store_upper(a.out + row * a.out_stride + j, bits_of(rounded.value) + splat_int(0x8000), n);
    }
    store_group(a.errors + j, errors, n);
  });
}

}  // namespace
}  // namespace tenon::kernels
