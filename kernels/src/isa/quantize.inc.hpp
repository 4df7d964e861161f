// Quantizers (contract and order of operations: quantize.hpp) for the combinations that training uses: E2M1,
// and rounded to nearest E4M3 and E5M2, in blocks of whole vectors along rows, or one column wide. The rest,
// and bands with values that are not finite, go to the reference; all results are those of the reference bit
// for bit.
#pragma once

#include <tenon/kernels/quantize.hpp>

#include "isa/quantize_draws.inc.hpp"
#include "isa/quantize_lanes.inc.hpp"
#include "isa/quantize_pairs.inc.hpp"
#include "isa/quantize_pairs_down.inc.hpp"
#include "isa/rotate.inc.hpp"
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
/// `n` codes of a row, as bytes or in pairs; an odd number of them is followed by a zero.
TENON_INLINE void store_codes(const std::uint8_t* codes, std::int64_t n, bool packed, std::uint8_t* out) {
  if (!packed) {
    __builtin_memcpy(out, codes, n);
    return;
  }
  for (std::int64_t i = 0; i < (n + 1) / 2; ++i)
    out[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
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

/// Stores scales of `n` neighbouring blocks for the caller.
template <class S>
TENON_INLINE void store_scales(const QuantizeArgs<S>& a, const BlockScales& scales, std::int64_t block,
                               std::int64_t n) {
  if (a.scales != nullptr) {
    std::uint8_t bytes[kLanes];
    store_bytes(bytes, scales.bits);
    __builtin_memcpy(a.scales + block, bytes, n);
  }
  if (a.float_scales != nullptr) store(a.float_scales + block, splat(1.0f) / scales.encode, n);
}

/// The last step to a bfloat16, nearest even; nothing where products of codes and scales are exact.
struct Narrowing {
  I half, odd;
  explicit TENON_INLINE Narrowing(bool exact)
      : half(splat_int(exact ? 0 : 0x7fff)), odd(splat_int(exact ? 0 : 1)) {}
};

/// Rounds 16 elements to values and, if asked for, codes.
template <Element kElement, Draw kDraw, bool kCodes>
TENON_INLINE void quantize_lanes(F x, F encode, F decode, const Narrowing& narrowing, I draw, Bf16* values,
                                 std::uint8_t* codes) {
  constexpr int kBits = Grid<kElement>::kLayout.bits;
  const F magnitude = min(abs(x * encode), splat(Grid<kElement>::kLargest));
  const Coded coded = round_magnitude<kElement, kDraw>(magnitude, draw);
  const I sign = bits_of(x) & splat_int(INT32_MIN);
  const I value = bits_of(coded.value * decode);
  store_upper(values, (value + narrowing.half + (shift_right(value, 16) & narrowing.odd)) | sign);
  if constexpr (kCodes) store_bytes(codes, coded.code | shift_right_logical(sign, 32 - kBits));
}

/// Draws of a span's vectors.
template <Draw kDraw>
struct SpanDraws {
  alignas(64) std::uint64_t words[kLanes * (kDraw == Draw::k24 ? 8 : 2)];

  TENON_INLINE void fill(const Stream& stream, std::int64_t group, std::int64_t line) {
    for (std::uint32_t part = 0; part < kDrawParts<kDraw>; ++part) {
      Words drawn;
      draw_along(stream, group, line, part, drawn);
      store_by_lane(drawn, words + 2 * part, 2 * kDrawParts<kDraw>);
    }
  }
  /// Draws of columns i to i + 15.
  TENON_INLINE I at(std::int64_t i) const {
    I draw = {};
    if constexpr (kDraw == Draw::k8) draw = load_bytes(reinterpret_cast<const std::uint8_t*>(words) + i);
    if constexpr (kDraw == Draw::k24) {
      __builtin_memcpy(&draw, words + i / 2, sizeof draw);
      draw = draw & splat_int(0xffffff);
    }
    return draw;
  }
};

/// At most kSpan columns of row `row` from `column` on. Encode and decode scales change every `vectors`
/// vectors.
template <class S, Element kElement, Draw kDraw>
TENON_INLINE void quantize_span(const QuantizeArgs<S>& a, std::int64_t row, std::int64_t column,
                                std::int64_t count, const float* encode, const float* decode, bool exact,
                                std::int64_t vectors, const Stream& stream) {
  alignas(64) std::uint8_t codes[kSpan];
  alignas(64) Bf16 unwanted[kSpan];
  SpanDraws<kDraw> draws;
  draws.fill(stream, (a.origin_column + column) / kLanes, a.origin_row + row);
  const S* x = a.x + row * a.stride + column;
  Bf16* values = a.values == nullptr ? unwanted : a.values + row * a.values_stride + column;
  const Narrowing narrowing(exact);
  std::int64_t block = 0, left = vectors, i = 0;
  const auto step = [&] {
    if (--left > 0) return;
    left = vectors;
    ++block;
  };
  if (a.codes == nullptr) {
    for (; i + kLanes <= count; i += kLanes, step())
      quantize_lanes<kElement, kDraw, false>(load(x + i), splat(encode[block]), splat(decode[block]),
                                             narrowing, draws.at(i), values + i, nullptr);
  } else {
    for (; i + kLanes <= count; i += kLanes, step())
      quantize_lanes<kElement, kDraw, true>(load(x + i), splat(encode[block]), splat(decode[block]),
                                            narrowing, draws.at(i), values + i, codes + i);
  }
  if (i < count) {
    Bf16 tail[kLanes];
    quantize_lanes<kElement, kDraw, true>(load(x + i, count - i), splat(encode[block]), splat(decode[block]),
                                          narrowing, draws.at(i), tail, codes + i);
    __builtin_memcpy(values + i, tail, (count - i) * sizeof(Bf16));
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
  // Large blocks are processed alone, so that their elements are still in the cache when they are rounded.
  const std::int64_t batch = block_rows * block_columns <= 128 ? kLanes : 1;
  const Stream stream = stream_of<kDraw>(a);
  I met = {};
  for (std::int64_t row = 0; row < a.rows; row += block_rows) {
    const std::int64_t rows = smaller(block_rows, a.rows - row);
    for (std::int64_t column = 0; column < a.columns; column += batch * block_columns) {
      const std::int64_t columns = smaller(batch * block_columns, a.columns - column);
      const std::int64_t blocks = (columns + block_columns - 1) / block_columns;
      const S* x = a.x + row * a.stride + column;
      IntQuad largest[kLanes] = {};
      if (block_rows * block_columns == kLanes && columns % kLanes == 0) {
        for (std::int64_t b = 0; b < blocks; ++b) largest[b] = four_lanes(magnitudes(load(x + b * kLanes)));
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
                                            decode + b, scales.exact, block_columns / kLanes, stream);
        }
    }
  }
  if (a.magnitude != nullptr && !whole) {
    const auto largest = static_cast<std::uint32_t>(largest_lane(met));
    if (*a.magnitude < largest) *a.magnitude = largest;
  }
  return true;
}

/// Draws of rows 16 i + e, e = 0 .. 15, in lanes of columns.
template <Draw kDraw>
struct DownDraws {
  Words parts[kDraw == Draw::k24 ? 4 : 1];

  TENON_INLINE void fill(const Stream& stream, std::int64_t group, std::int64_t line) {
    for (std::uint32_t part = 0; part < kDrawParts<kDraw>; ++part)
      draw_down<1>(stream, group, line, part, parts[part]);
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
  const Stream stream = stream_of<kDraw>(a);
  I met = {};
  for (std::int64_t row = 0; row < a.rows; row += a.block_rows) {
    const std::int64_t rows = smaller(a.block_rows, a.rows - row);
    std::int64_t column = 0;
    if constexpr (kRotate && sizeof(S) == sizeof(Bf16) && kDraw != Draw::k24) {
      if (rows == kLanes) column = tiled_columns(a);
      if (!quantize_tiles<kDraw>(a, stream, row, column, met)) return false;
    }
    for (; column < a.columns; column += kLanes) {
      const std::int64_t columns = smaller(kLanes, a.columns - column);
      const S* x = a.x + row * a.stride + column;
      [[maybe_unused]] F rotated[kLanes];
      I amax = {};
      if constexpr (kRotate) {
        rotate_down(x, rows, columns, a.stride, rotated);
        amax = largest_rotated(rotated);
      } else {
        for (std::int64_t r = 0; r < rows; ++r)
          amax = max_magnitude(amax, magnitudes(load_group(x + r * a.stride, columns)));
      }
      met = max_magnitude(met, amax);
      if (largest_lane(amax) >= kExponentBits) return false;
      const BlockScales scales = scales_of<kElement>(a, amax);
      store_scales(a, scales, row / a.block_rows * a.scales_stride + column, columns);
      const std::int64_t written = kRotate ? kLanes : rows;
      const Narrowing narrowing(scales.exact);
      DownDraws<kDraw> draws;
      for (std::int64_t first = 0; first < written; first += kLanes) {
        draws.fill(stream, (a.origin_row + row + first) / kLanes, a.origin_column + column);
        const std::int64_t count = smaller(kLanes, written - first);
        const auto element = [&](int e) TENON_BODY {
          if constexpr (kRotate)
            return rotated_value(rotated[e]);
          else
            return load_group(a.x + (row + first + e) * a.stride + column, columns);
        };
        const auto values = [&](int e) TENON_BODY {
          return a.values == nullptr ? nullptr : a.values + (row + first + e) * a.values_stride + column;
        };
        if (a.codes == nullptr && columns == kLanes && a.values != nullptr) {
          for (int e = 0; e < count; ++e)
            quantize_lanes<kElement, kDraw, false>(element(e), scales.encode, scales.decode, narrowing,
                                                   draws.row(e), values(e), nullptr);
          continue;
        }
        for (int e = 0; e < count; ++e) {
          Bf16 rounded[kLanes];
          std::uint8_t codes[kLanes];
          quantize_lanes<kElement, kDraw, true>(element(e), scales.encode, scales.decode, narrowing,
                                                draws.row(e), rounded, codes);
          if (Bf16* to = values(e); to != nullptr) __builtin_memcpy(to, rounded, columns * sizeof(Bf16));
          if (a.codes != nullptr)
            store_codes(codes, columns, a.packed,
                        a.codes + (row + first + e) * a.codes_stride + (a.packed ? column / 2 : column));
        }
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

/// The function above that computes a band, if any.
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
  if constexpr (sizeof(S) == sizeof(Bf16) && kElement == Element::kE2M1 && kDraw != Draw::k24)
    if (way == Way::kAlong && in_pairs_along(a)) return quantize_pairs_along<kDraw>(a);
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

/// Bits of a magnitude in an integer of the element's width.
TENON_INLINE std::int32_t magnitude_word(float x) {
  return __builtin_bit_cast(std::int32_t, x) & 0x7fffffff;
}
TENON_INLINE std::int16_t magnitude_word(Bf16 x) {
  return static_cast<std::int16_t>(x.bits & 0x7fffu);
}
/// Bits of the largest magnitude of n contiguous elements. This pass only waits for memory.
template <class S>
TENON_INLINE std::uint32_t largest_bits(const S* x, std::int64_t n) {
  constexpr std::int64_t kPart = 512 / sizeof(S);
  decltype(magnitude_word(*x)) largest = 0;
  for (std::int64_t begin = 0; begin < n; begin += kPart) {
    prefetch_lines(x + begin + kAhead, kPart);
    const std::int64_t end = smaller(begin + kPart, n);
    for (std::int64_t i = begin; i < end; ++i) {
      const auto bits = magnitude_word(x[i]);
      largest = largest < bits ? bits : largest;
    }
  }
  return static_cast<std::uint32_t>(largest) << (32 - 8 * sizeof largest);
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
  for (std::int64_t row = 0; row < rows; row += kLanes) {
    std::int64_t column = 0;
    if constexpr (sizeof(S) == sizeof(Bf16))
      for (; rows - row >= kLanes && columns - column >= kPairColumns; column += kPairColumns)
        largest = max_magnitude(largest, largest_of_tile(x + row * stride + column, stride));
    for (; column < columns; column += kLanes) {
      F v[kLanes];
      rotate_down(x + row * stride + column, smaller(kLanes, rows - row), smaller(kLanes, columns - column),
                  stride, v);
      largest = max_magnitude(largest, largest_rotated(v));
    }
  }
  const std::int32_t bits = largest_lane(largest);
  // The reference decides which NaN a sum of two has, and whether it is one.
  if (bits >= kExponentBits) return plain::amax_rotated(x, rows, columns, stride, along_rows);
  return static_cast<std::uint32_t>(bits);
}

}  // namespace
}  // namespace tenon::kernels
