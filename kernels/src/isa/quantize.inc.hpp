// Quantizers (contract and order of operations: quantize.hpp) for the combinations that training uses: E2M1,
// and rounded to nearest E4M3 and E5M2, in blocks of whole vectors along rows, or one column wide. The rest,
// and bands that hold something that is not finite, go to the reference; all results are those of the
// reference bit for bit.
#pragma once

#include <tenon/kernels/hadamard.hpp>
#include <tenon/kernels/quantize.hpp>

#include "isa/quantize_draws.inc.hpp"
#include "isa/quantize_lanes.inc.hpp"
#include "plain_quantize.hpp"

namespace tenon::kernels {
namespace {

/// Columns of a row that are rounded together: the draws of 16 groups.
constexpr std::int64_t kSpan = kLanes * kLanes;

TENON_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

TENON_INLINE I load_bytes(const std::uint8_t* p) {
  std::int32_t lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = p[l];
  I result;
  __builtin_memcpy(&result, lanes, sizeof result);
  return result;
}
TENON_INLINE void store_bytes(std::uint8_t* p, I a) {
  std::int32_t lanes[kLanes];
  __builtin_memcpy(lanes, &a, sizeof lanes);
  for (int l = 0; l < kLanes; ++l) p[l] = static_cast<std::uint8_t>(lanes[l]);
}
/// Floats that are bfloat16 already.
TENON_INLINE void store_exact(Bf16* p, F a, std::int64_t n) {
  const I upper = shift_right(bits_of(a), 16);
  std::int32_t lanes[kLanes];
  __builtin_memcpy(lanes, &upper, sizeof lanes);
  Bf16 narrow[kLanes];
  for (int l = 0; l < kLanes; ++l) narrow[l].bits = static_cast<std::uint16_t>(lanes[l]);
  if (n == kLanes)
    __builtin_memcpy(p, narrow, sizeof narrow);
  else
    __builtin_memcpy(p, narrow, static_cast<std::size_t>(n) * sizeof(Bf16));
}
/// `n` codes of a row, as bytes or in pairs; behind the last of an odd number is a zero.
TENON_INLINE void store_codes(const std::uint8_t* codes, std::int64_t n, bool packed, std::uint8_t* out) {
  if (!packed) {
    __builtin_memcpy(out, codes, static_cast<std::size_t>(n));
    return;
  }
  for (std::int64_t i = 0; i < (n + 1) / 2; ++i)
    out[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
}

template <class S>
TENON_INLINE Stream stream_of(const QuantizeArgs<S>& a) {
  return {a.key, static_cast<std::uint32_t>(a.step), a.micro};
}

template <Element kElement, class S>
TENON_INLINE BlockScales scales_of(const QuantizeArgs<S>& a, I amax) {
  if constexpr (kElement == Element::kE2M1) {
    if (a.scaling == Scaling::kTwoLevel) return two_level_scales(amax, a.tensor);
  } else {
    if (a.scaling == Scaling::kTensor) return {splat(a.tensor.encode), splat(1.0f), splat_int(0), true};
    if (a.scaling == Scaling::kFloat)
      return float_scales<kElement>(amax, sizeof(S) == sizeof(Bf16) ? 0x1.fep127f : kLargestFloat);
  }
  return power_scales<kElement>(amax, a.power);
}

/// Scales of `n` neighbouring blocks to where the caller wants them.
template <class S>
TENON_INLINE void store_scales(const QuantizeArgs<S>& a, const BlockScales& scales, std::int64_t block,
                               std::int64_t n) {
  if (a.scales != nullptr) {
    std::uint8_t bytes[kLanes];
    store_bytes(bytes, scales.bits);
    __builtin_memcpy(a.scales + block, bytes, static_cast<std::size_t>(n));
  }
  if (a.float_scales != nullptr) store(a.float_scales + block, splat(1.0f) / scales.encode, n);
}

/// Rounds 16 elements; n of them are stored as values, codes go to 16 bytes.
template <Element kElement, Draw kDraw>
TENON_INLINE void quantize_lanes(F x, F encode, F decode, bool exact, I draw, Bf16* values, std::int64_t n,
                                 std::uint8_t* codes) {
  constexpr int kBits = Grid<kElement>::kLayout.bits;
  const F magnitude = min(abs(x * encode), splat(Grid<kElement>::kLargest));
  const Coded coded = round_magnitude<kElement, kDraw>(magnitude, draw);
  const I sign = bits_of(x) & splat_int(INT32_MIN);
  if (values != nullptr) {
    const F value = from_bits(bits_of(coded.value * decode) | sign);
    if (exact)
      store_exact(values, value, n);
    else
      store_group(values, value, n);
  }
  if (codes != nullptr) store_bytes(codes, coded.code | shift_right_logical(sign, 32 - kBits));
}

/// At most kSpan columns of row `row` from `column` on. Encode and decode scales change every `vectors`
/// vectors.
template <class S, Element kElement, Draw kDraw>
TENON_INLINE void quantize_span(const QuantizeArgs<S>& a, std::int64_t row, std::int64_t column,
                                std::int64_t count, const float* encode, const float* decode, bool exact,
                                std::int64_t vectors) {
  alignas(64) std::uint8_t codes[kSpan];
  [[maybe_unused]] alignas(64) std::uint64_t random[kLanes * (kDraw == Draw::k24 ? 8 : 2)];
  const std::int64_t group = (a.origin_column + column) / kLanes, line = a.origin_row + row;
  for (std::uint32_t part = 0; part < kDrawParts<kDraw>; ++part) {
    Words words;
    draw_words(stream_of(a), false, group, line, part, words);
    store_by_lane(words, random + 2 * part, 2 * kDrawParts<kDraw>);
  }
  const S* x = a.x + row * a.stride + column;
  Bf16* values = a.values == nullptr ? nullptr : a.values + row * a.values_stride + column;
  std::int64_t block = 0, left = vectors;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t n = smaller(kLanes, count - i);
    I draw = {};
    if constexpr (kDraw == Draw::k8) draw = load_bytes(reinterpret_cast<const std::uint8_t*>(random) + i);
    if constexpr (kDraw == Draw::k24) {
      __builtin_memcpy(&draw, random + i / 2, sizeof draw);
      draw = draw & splat_int(0xffffff);
    }
    quantize_lanes<kElement, kDraw>(load_group(x + i, n), splat(encode[block]), splat(decode[block]), exact,
                                    draw, values == nullptr ? nullptr : values + i, n,
                                    a.codes == nullptr ? nullptr : codes + i);
    if (--left == 0) {
      left = vectors;
      ++block;
    }
  }
  if (a.codes != nullptr)
    store_codes(codes, count, a.packed, a.codes + row * a.codes_stride + (a.packed ? column / 2 : column));
}

/// Magnitudes over `rows` rows of `columns` columns.
template <class S>
TENON_INLINE I largest_of_block(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  I largest = {};
  for (std::int64_t r = 0; r < rows; ++r)
    for_lanes(0, columns, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      largest = max_magnitude(largest, magnitudes(load_group(x + r * stride + j, n)));
    });
  return largest;
}

/// Blocks of whole vectors along rows; false if something is not finite.
template <class S, Element kElement, Draw kDraw>
bool quantize_along(const QuantizeArgs<S>& a) {
  const bool whole = a.scaling == Scaling::kTensor;
  const std::int64_t block_rows = whole ? 1 : a.block_rows;
  const std::int64_t block_columns = whole ? kSpan : a.block_columns;
  // Large blocks are taken alone, so that their elements are still in the cache when they are rounded.
  const std::int64_t batch = block_rows * block_columns <= 128 ? kLanes : 1;
  I met = {};
  for (std::int64_t row = 0; row < a.rows; row += block_rows) {
    const std::int64_t rows = smaller(block_rows, a.rows - row);
    for (std::int64_t column = 0; column < a.columns; column += batch * block_columns) {
      const std::int64_t columns = smaller(batch * block_columns, a.columns - column);
      const std::int64_t blocks = (columns + block_columns - 1) / block_columns;
      const S* x = a.x + row * a.stride + column;
      IntQuad largest[kLanes] = {};
      if (block_rows * block_columns == kLanes && blocks == kLanes && columns == kSpan) {
        for (int b = 0; b < kLanes; ++b) largest[b] = four_lanes(magnitudes(load(x + b * kLanes)));
      } else {
        for (std::int64_t b = 0; b < blocks; ++b) {
          const std::int64_t at = b * block_columns;
          largest[b] =
              four_lanes(largest_of_block(x + at, rows, smaller(block_columns, columns - at), a.stride));
        }
      }
      const I amax = largest_lanes(largest);
      met = max_magnitude(met, amax);
      if (largest_lane(amax) >= kExponentBits) return false;
      const BlockScales scales = scales_of<kElement>(a, amax);
      if (!whole) {
        const std::int64_t block = row / block_rows * a.scales_stride + column / block_columns;
        store_scales(a, scales, block, blocks);
      }
      float encode[kLanes], decode[kLanes];
      store(encode, scales.encode);
      store(decode, scales.decode);
      for (std::int64_t r = row; r < row + rows; ++r)
        for (std::int64_t j = 0; j < columns; j += kSpan) {
          const std::int64_t b = j / block_columns;
          quantize_span<S, kElement, kDraw>(a, r, column + j, smaller(kSpan, columns - j), encode + b,
                                            decode + b, scales.exact, block_columns / kLanes);
        }
    }
  }
  if (a.magnitude != nullptr && !whole) {
    const auto largest = static_cast<std::uint32_t>(largest_lane(met));
    if (*a.magnitude < largest) *a.magnitude = largest;
  }
  return true;
}

/// Nearest even; NaN stays NaN.
TENON_INLINE F rounded_to_bf16(F a) {
  const I bits = bits_of(a);
  const I rounded = bits + splat_int(0x7fff) + (shift_right(bits, 16) & splat_int(1));
  const I nan = splat_int(kExponentBits) < magnitudes(a);
  return from_bits(select(nan, bits | splat_int(0x00400000), rounded) & splat_int(-0x10000));
}

/// 16 rows of at most 16 columns, rotated down the columns (hadamard.hpp); rows from `rows` on are zero.
template <class S>
TENON_INLINE void rotate_down(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                              F (&v)[kLanes]) {
  for (int i = 0; i < kLanes; ++i) {
    v[i] = i < rows ? load_group(x + i * stride, columns) : splat(0.0f);
    if constexpr (sizeof(S) != sizeof(Bf16)) v[i] = rounded_to_bf16(v[i]);
    if ((kHadamardSigns >> i & 1u) != 0) v[i] = from_bits(bits_of(v[i]) ^ splat_int(INT32_MIN));
  }
  for (int distance = 1; distance < kLanes; distance *= 2)
    for (int i = 0; i < kLanes; ++i) {
      if ((i & distance) != 0) continue;
      const F low = v[i], high = v[i + distance];
      v[i] = low + high;
      v[i + distance] = low - high;
    }
  for (int i = 0; i < kLanes; ++i) v[i] = rounded_to_bf16(v[i] * splat(0.25f));
}

/// Draws of rows 16 i + e, e = 0 .. 15, in lanes of columns.
template <Draw kDraw>
struct DownDraws {
  Words parts[kDraw == Draw::k24 ? 4 : 1];

  TENON_INLINE void fill(const Stream& stream, std::int64_t group, std::int64_t line) {
    for (std::uint32_t part = 0; part < kDrawParts<kDraw>; ++part)
      draw_words(stream, true, group, line, part, parts[part]);
  }
  TENON_INLINE I row(int e) const {
    if constexpr (kDraw == Draw::kNone)
      return I{};
    else if constexpr (kDraw == Draw::k8)
      return shift_right_logical(word_lanes(parts[0], e / 4), 8 * (e % 4)) & splat_int(0xff);
    else
      return word_lanes(parts[e / 4], e % 4) & splat_int(0xffffff);
  }
};

/// Blocks of one column; false if something is not finite.
template <class S, Element kElement, Draw kDraw, bool kRotate>
bool quantize_down(const QuantizeArgs<S>& a) {
  I met = {};
  for (std::int64_t row = 0; row < a.rows; row += a.block_rows) {
    const std::int64_t rows = smaller(a.block_rows, a.rows - row);
    for (std::int64_t column = 0; column < a.columns; column += kLanes) {
      const std::int64_t columns = smaller(kLanes, a.columns - column);
      const S* x = a.x + row * a.stride + column;
      [[maybe_unused]] F rotated[kLanes];
      I amax = {};
      if constexpr (kRotate) {
        rotate_down(x, rows, columns, a.stride, rotated);
        for (int i = 0; i < kLanes; ++i) amax = max_magnitude(amax, magnitudes(rotated[i]));
      } else {
        for (std::int64_t r = 0; r < rows; ++r)
          amax = max_magnitude(amax, magnitudes(load_group(x + r * a.stride, columns)));
      }
      met = max_magnitude(met, amax);
      if (largest_lane(amax) >= kExponentBits) return false;
      const BlockScales scales = scales_of<kElement>(a, amax);
      store_scales(a, scales, row / a.block_rows * a.scales_stride + column, columns);
      const std::int64_t written = kRotate ? kLanes : rows;
      DownDraws<kDraw> draws;
      for (std::int64_t first = 0; first < written; first += kLanes) {
        draws.fill(stream_of(a), (a.origin_row + row + first) / kLanes, a.origin_column + column);
        const auto one_row = [&](int e) TENON_BODY {
          const std::int64_t at = row + first + e;
          F element;
          if constexpr (kRotate)
            element = rotated[e];
          else
            element = load_group(a.x + at * a.stride + column, columns);
          Bf16* values = a.values == nullptr ? nullptr : a.values + at * a.values_stride + column;
          std::uint8_t codes[kLanes];
          quantize_lanes<kElement, kDraw>(element, scales.encode, scales.decode, scales.exact, draws.row(e),
                                          values, columns, a.codes == nullptr ? nullptr : codes);
          if (a.codes != nullptr)
            store_codes(codes, columns, a.packed,
                        a.codes + at * a.codes_stride + (a.packed ? column / 2 : column));
        };
        const std::int64_t count = smaller(kLanes, written - first);
        for (int e = 0; e < count; ++e) one_row(e);
      }
    }
  }
  if (a.magnitude != nullptr) {
    const auto largest = static_cast<std::uint32_t>(largest_lane(met));
    if (*a.magnitude < largest) *a.magnitude = largest;
  }
  return true;
}

TENON_INLINE bool is_finite(float x) {
  return (__builtin_bit_cast(std::uint32_t, x) & 0x7fffffffu) < 0x7f800000u;
}

/// Which of the two above computes a band, if any.
enum class Way { kReference, kAlong, kDown };

template <class S>
TENON_INLINE Way way_of(const QuantizeArgs<S>& a) {
  const bool whole = a.scaling == Scaling::kTensor;
  if (a.lines != nullptr || a.four_over_six) return Way::kReference;
  if (a.scaling == Scaling::kTwoLevel ? a.element != Element::kE2M1
                                      : a.element == Element::kE2M3 || a.element == Element::kE3M2)
    return Way::kReference;
  if (a.element == Element::kE2M1 && a.scaling != Scaling::kTwoLevel && a.scaling != Scaling::kPower)
    return Way::kReference;
  if (a.stochastic && a.element != Element::kE2M1) return Way::kReference;
  if (!is_finite(a.tensor.encode) || !is_finite(a.tensor.decode)) return Way::kReference;
  if (whole || (a.block_rows <= a.block_columns && a.block_columns % kLanes == 0)) {
    const bool aligned = !a.stochastic || a.origin_column % kLanes == 0;
    return a.rotate || !aligned ? Way::kReference : Way::kAlong;
  }
  if (a.block_columns != 1 || a.block_rows == 1 || (a.rotate && a.block_rows != kLanes))
    return Way::kReference;
  const bool aligned = !a.stochastic || (a.origin_row % kLanes == 0 && a.block_rows % kLanes == 0);
  return aligned ? Way::kDown : Way::kReference;
}

template <class S, Element kElement, Draw kDraw>
bool quantize_fast(const QuantizeArgs<S>& a, Way way) {
  if (way == Way::kAlong) return quantize_along<S, kElement, kDraw>(a);
  if constexpr (kElement == Element::kE2M1)
    if (a.rotate) return quantize_down<S, kElement, kDraw, true>(a);
  return !a.rotate && quantize_down<S, kElement, kDraw, false>(a);
}

template <class S>
void quantize(const QuantizeArgs<S>& a) {
  const Way way = way_of(a);
  bool done = false;
  if (way != Way::kReference) {
    constexpr Element kFour = Element::kE2M1;
    if (a.element == Element::kE4M3) done = quantize_fast<S, Element::kE4M3, Draw::kNone>(a, way);
    if (a.element == Element::kE5M2) done = quantize_fast<S, Element::kE5M2, Draw::kNone>(a, way);
    if (a.element == kFour && !a.stochastic) done = quantize_fast<S, kFour, Draw::kNone>(a, way);
    if (a.element == kFour && a.stochastic && a.random_bits == 8)
      done = quantize_fast<S, kFour, Draw::k8>(a, way);
    if (a.element == kFour && a.stochastic && a.random_bits != 8)
      done = quantize_fast<S, kFour, Draw::k24>(a, way);
  }
  if (!done) plain::quantize(a);
}

/// Whole rows as one where they lie behind each other.
TENON_INLINE std::uint32_t largest_bits(const float* x, std::int64_t n) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int32_t bits;
    __builtin_memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffff;
    largest = largest < bits ? bits : largest;
  }
  return static_cast<std::uint32_t>(largest);
}
TENON_INLINE std::uint32_t largest_bits(const Bf16* x, std::int64_t n) {
  std::int16_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = static_cast<std::int16_t>(x[i].bits & 0x7fffu);
    largest = largest < bits ? bits : largest;
  }
  return static_cast<std::uint32_t>(largest) << 16;
}

template <class S>
std::uint32_t amax(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  if (stride == columns) return largest_bits(x, rows * columns);
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::uint32_t bits = largest_bits(x + i * stride, columns);
    largest = largest < bits ? bits : largest;
  }
  return largest;
}

template <class S>
std::uint32_t amax_rotated(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                           bool along_rows) {
  if (!along_rows) return plain::amax_rotated(x, rows, columns, stride, along_rows);
  I largest = {};
  for (std::int64_t row = 0; row < rows; row += kLanes)
    for (std::int64_t column = 0; column < columns; column += kLanes) {
      F v[kLanes];
      rotate_down(x + row * stride + column, smaller(kLanes, rows - row), smaller(kLanes, columns - column),
                  stride, v);
      for (int i = 0; i < kLanes; ++i) largest = max_magnitude(largest, magnitudes(v[i]));
    }
  const std::int32_t bits = largest_lane(largest);
  // Which NaN comes out of a sum of two is for the reference to say.
  if (bits > kExponentBits) return plain::amax_rotated(x, rows, columns, stride, along_rows);
  return static_cast<std::uint32_t>(bits);
}

}  // namespace
}  // namespace tenon::kernels
