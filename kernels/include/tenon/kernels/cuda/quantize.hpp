// Kernel bodies of block-scaled quantizers: the bits of the functions that define them
// (reference/quantize.hpp), spread over threads. Here: rounding, one scale for the matrix, one thread per
// block, and decoding. Blocks of common shapes stay in registers (quantize_lines.hpp) or go through tiles in
// shared memory (quantize_tile.hpp); start_quantize (quantize_start.hpp) chooses.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/storage.hpp>
#include <tenon/kernels/reference/quantize.hpp>

namespace tenon::kernels::cuda {

/// Elements of a row that one thread processes at once.
inline constexpr int kQuantizeRun = 8;

/// draw_of() for 8 bits, compiled once: few elements need it.
TENON_BOTH TENON_NOINLINE inline std::uint32_t draw_apart(DrawStream stream, std::uint64_t along,
                                                          std::uint64_t line) {
  return draw_of(stream, along, line, 8);
}

/// The place in a stream of draws of each element from (i, j) on down the column or along the row, and draws
/// of 8 bits. Where the elements are a line's from the begin of a group of 16 (kFrom 16) or from its middle,
/// too (kFrom 8), four random words serve 16 of them. An element's number must be constant once loops are
/// unrolled, or the words were in memory.
template <class S, int kFrom, bool kDown>
class Draws {
 public:
  TENON_BOTH Draws(const QuantizeArgs<S>& a, std::int64_t i, std::int64_t j)
      : stream_{a.key, a.step, a.micro} {
    const auto row = static_cast<std::uint64_t>(a.origin_row + i);
    const auto column = static_cast<std::uint64_t>(a.origin_column + j);
    const bool lines_down = reference::runs_down(a);
    along_ = lines_down ? row : column, line_ = lines_down ? column : row;
    follows_line_ = kDown == lines_down;
    ordered_ = follows_line_ && along_ % kFrom == 0;
  }

  TENON_BOTH const DrawStream& stream() const { return stream_; }
  TENON_BOTH std::uint64_t along(int e) const { return along_ + (follows_line_ ? e : 0); }
  TENON_BOTH std::uint64_t line(int e) const { return line_ + (follows_line_ ? 0 : e); }

  /// The 8 bits of element e after the first; each is asked for once, ascending.
  TENON_BOTH std::uint32_t byte(int e) {
    if (!ordered_) return draw_apart(stream_, along(e), line(e));
    if (e % 16 == 0) {
      const auto words = draw_words(stream_, along_ / 16 + e / 16, line_, 0);
      TENON_UNROLL
      for (int w = 0; w < 4; ++w) words_[w] = words[w];
    }
    if (e == 0 && along_ % 16 == 8) words_[0] = words_[2], words_[1] = words_[3];
    return words_[e % 16 / 4] >> (8 * (e % 4)) & 0xffu;
  }

 private:
  static_assert(kFrom == 8 || kFrom == 16);

  DrawStream stream_;
  std::uint64_t along_ = 0, line_ = 0;
  bool follows_line_ = false, ordered_ = false;
  std::uint32_t words_[4] = {};
};

/// Rotates 16 elements in place; at(e) refers to one. The results are bfloat16 values, which S represents.
template <class S, class At>
TENON_BOTH void rotate_group(At at) {
  float v[16];
  TENON_UNROLL
  for (int e = 0; e < 16; ++e) v[e] = to_float(to_bf16(reference::get(at(e))));
  rotate16(v);
  TENON_UNROLL
  for (int e = 0; e < 16; ++e) at(e) = put<S>(v[e]);
}

// Rounding to an element format, with the layout a constant: codes of formats.hpp and stochastic.hpp and what
// they stand for, by float arithmetic in a third of the instructions.

struct CodedElement {
  std::uint8_t code;
  float value;  ///< decode(code)
};

template <Element kElement>
struct ElementGrid {
  static constexpr ElementLayout kLayout = layout_of(kElement);
  static constexpr std::uint32_t kExponent = 0x7f800000u;
  static constexpr std::uint32_t kLargest = std::bit_cast<std::uint32_t>(kLayout.largest);
  /// Exponent field of the smallest normal; below it codes are as far apart as there.
  static constexpr std::uint32_t kSmallest = static_cast<std::uint32_t>(128 - kLayout.bias) << 23;
  static constexpr int kDropped = 23 - kLayout.mantissa;
  static constexpr std::uint32_t kNormals = (kSmallest >> kDropped) - (1u << kLayout.mantissa);

  TENON_BOTH static std::uint32_t field(std::uint32_t magnitude) {
    const std::uint32_t own = magnitude & kExponent;
    return own < kSmallest ? kSmallest : own;
  }
};

/// encode(x) and its value.
template <Element kElement>
TENON_BOTH CodedElement round_nearest(float x) {
  using G = ElementGrid<kElement>;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits & ~kMagnitudeMask, magnitude = bits & kMagnitudeMask;
  const ElementLayout layout = layout_of(kElement);  // on a device a static constant has no address
  if (magnitude > kInfinityBits) {
    const std::uint8_t code = encode_nan(sign >> 31, layout);
    return {code, decode(code, kElement)};
  }
  const std::uint32_t clamped = magnitude < G::kLargest ? magnitude : G::kLargest, field = G::field(clamped);
  // The anchor's last place is the distance between codes, so the sum is rounded to codes, ties to even.
  const std::uint32_t anchor = field + (static_cast<std::uint32_t>(G::kDropped) << 23);
  const float sum = std::bit_cast<float>(clamped) + std::bit_cast<float>(anchor);
  const std::uint32_t code =
      ((field - G::kSmallest) >> G::kDropped) + (std::bit_cast<std::uint32_t>(sum) - anchor);
  return {with_sign(code, sign >> 31, layout),
          std::bit_cast<float>(std::bit_cast<std::uint32_t>(sum - std::bit_cast<float>(anchor)) | sign)};
}

/// encode_stochastic8(x, draw) and its value.
template <Element kElement>
TENON_BOTH CodedElement round_by_byte(float x, std::uint32_t draw) {
  using G = ElementGrid<kElement>;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits & ~kMagnitudeMask, magnitude = bits & kMagnitudeMask;
  if (magnitude >= G::kLargest) return round_nearest<kElement>(x);
  const auto step =
      std::bit_cast<float>(G::field(magnitude) - (static_cast<std::uint32_t>(G::kLayout.mantissa) << 23));
  const float moved = std::bit_cast<float>(magnitude) + static_cast<float>(draw & 0xffu) * 0x1p-8f * step;
  const auto moved_bits = std::bit_cast<std::uint32_t>(moved);
  constexpr auto kUnit = std::bit_cast<float>(
      G::kSmallest - (static_cast<std::uint32_t>(G::kLayout.mantissa) << 23));  // between subnormal codes
  constexpr float kUnits = 1 / kUnit;
  // Never beyond the largest code: a magnitude below it moves by less than a step.
  const std::uint32_t code = moved_bits < G::kSmallest ? static_cast<std::uint32_t>(moved * kUnits)
                                                       : (moved_bits >> G::kDropped) - G::kNormals;
  const float value = code < (1u << G::kLayout.mantissa)
                          ? static_cast<float>(code) * kUnit
                          : std::bit_cast<float>((code + G::kNormals) << G::kDropped);
  const ElementLayout layout = layout_of(kElement);
  return {with_sign(code, sign >> 31, layout),
          std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign)};
}

/// encode_stochastic24() by the draw at a place, and its value. Compiled once: 24 bits are asked for to judge
/// what 8 bits lose, and inlined they were half of the code of these kernels.
template <Element kElement>
TENON_BOTH TENON_NOINLINE CodedElement round_by_word(float x, DrawStream stream, std::uint64_t along,
                                                     std::uint64_t line) {
  const std::uint8_t code = encode_stochastic24(x, kElement, draw_of(stream, along, line, 24));
  return {code, decode(code, kElement)};
}

/// encode_element() of the reference for element e of `draws`, and its value.
template <Element kElement, class S, class D>
TENON_BOTH CodedElement round_element(const QuantizeArgs<S>& a, float x,
                                      const reference::BlockNumbers& numbers, D& draws, int e) {
  float scaled = x * numbers.encode;
  if (kElement != Element::kE2M1 && a.scaling == Scaling::kTwoLevel)
    scaled = clamp6(scaled);  // E2M1 saturates there
  if (!a.stochastic) return round_nearest<kElement>(scaled);
  if (a.random_bits == 8) return round_by_byte<kElement>(scaled, draws.byte(e));
  return round_by_word<kElement>(scaled, draws.stream(), draws.along(e), draws.line(e));
}

/// A thread's results for elements (i, j) ... (i, j + n - 1), j even; packed codes are two per byte.
template <int N>
struct Rounded {
  Run<std::uint8_t, N> codes = {};
  Run<Bf16, N> values = {};

  TENON_BOTH void put(int e, const CodedElement& rounded, const reference::BlockNumbers& numbers) {
    codes.at[e] = rounded.code;
    values.at[e] = to_bf16(rounded.value * numbers.decode);
  }
};

template <int N, class S>
TENON_BOTH void store_rounded(const QuantizeArgs<S>& a, const Rounded<N>& rounded, std::int64_t i,
                              std::int64_t j, int n) {
  if (a.values != nullptr) store_run<N>(a.values + i * a.values_stride + j, rounded.values, n);
  if (a.codes == nullptr) return;
  if (!a.packed) return store_run<N>(a.codes + i * a.codes_stride + j, rounded.codes, n);
  Run<std::uint8_t, N / 2> pairs = {};
  for (int e = 0; e < N / 2; ++e)
    pairs.at[e] = pack_e2m1(rounded.codes.at[2 * e], rounded.codes.at[2 * e + 1]);
  store_run<N / 2>(a.codes + i * a.codes_stride + j / 2, pairs, (n + 1) / 2);
}

/// Rounds the first n elements of `x`, which begin at (i, j) and share one scale, and stores the results.
template <Element kElement, class S>
TENON_BOTH void quantize_run(const QuantizeArgs<S>& a, const Run<S, kQuantizeRun>& x,
                             const reference::BlockNumbers& numbers, std::int64_t i, std::int64_t j, int n) {
  Draws<S, kQuantizeRun, false> draws(a, i, j);
  Rounded<kQuantizeRun> rounded;
  TENON_UNROLL
  for (int e = 0; e < kQuantizeRun; ++e) {
    if (e >= n) continue;
    rounded.put(e, round_element<kElement>(a, reference::get(x.at[e]), numbers, draws, e), numbers);
  }
  store_rounded(a, rounded, i, j, n);
}

TENON_BOTH constexpr std::int64_t pieces_of(std::int64_t extent, std::int64_t piece) {
  return (extent + piece - 1) / piece;
}

/// kTensor: all elements under one scale.
template <class S, Element kElement>
struct QuantizeWhole {
  QuantizeArgs<S> args;

  TENON_BOTH void operator()(const Block& block) const {
    const QuantizeArgs<S>& a = args;
    const std::int64_t across = pieces_of(a.columns, kQuantizeRun);
    for_each_element(block, a.rows * across, [&](std::int64_t at) {
      const Divided place = divided(at, across);
      const std::int64_t i = place.quotient, j = place.remainder * kQuantizeRun;
      const int n = left_of(a.columns, j, kQuantizeRun);
      const auto x = load_run<kQuantizeRun>(a.x + i * a.stride + j, n);
      quantize_run<kElement>(a, x, {0, a.tensor.encode, 1.0f}, i, j, n);
    });
  }
};

/// Any blocks: a thread processes one, or two neighbours where two may share a byte of packed codes.
template <class S>
struct QuantizeBlocks {
  QuantizeArgs<S> args;

  TENON_BOTH static std::int64_t together(const QuantizeArgs<S>& a) {
    return a.packed && a.block_columns % 2 != 0 ? 2 : 1;
  }
  TENON_BOTH static std::int64_t across(const QuantizeArgs<S>& a) {
    return pieces_of(pieces_of(a.columns, a.block_columns), together(a));
  }
  TENON_BOTH static std::int64_t items(const QuantizeArgs<S>& a) {
    return pieces_of(reference::written_rows(a), a.block_rows) * across(a);
  }

  TENON_BOTH void operator()(const Block& block) const {
    const QuantizeArgs<S>& a = args;
    for_each_element(block, items(a), [&](std::int64_t at) {
      const std::int64_t rows = reference::written_rows(a), down = at / across(a), row = down * a.block_rows;
      const std::int64_t bottom = row + a.block_rows < rows ? row + a.block_rows : rows;
      for (std::int64_t k = 0; k < together(a); ++k) {
        const std::int64_t index = at % across(a) * together(a) + k, column = index * a.block_columns;
        if (column >= a.columns) return;
        const std::int64_t right =
            column + a.block_columns < a.columns ? column + a.block_columns : a.columns;
        const std::uint32_t largest =
            reference::quantize_block(a, reference::Block{row, bottom, column, right},
                                      down * a.scales_stride + index, reference::runs_down(a) ? column : row);
        if (a.magnitude != nullptr) raise(a.magnitude, largest);
      }
    });
  }
};

/// Values from codes and scales.
template <class S, Element kElement>
struct Dequantize {
  QuantizeArgs<S> args;

  TENON_BOTH static float scale_of(const QuantizeArgs<S>& a, std::int64_t i, std::int64_t j) {
    if (a.scaling == Scaling::kTensor || a.scaling == Scaling::kFloat) return 1.0f;
    const std::uint8_t bits =
        a.scales[divided(i, a.block_rows).quotient * a.scales_stride + divided(j, a.block_columns).quotient];
    return a.scaling == Scaling::kTwoLevel ? decode(bits, Element::kE4M3) : decode_e8m0(bits);
  }

  TENON_BOTH void operator()(const Block& block) const {
    const QuantizeArgs<S>& a = args;
    const std::int64_t across = pieces_of(a.columns, kQuantizeRun);
    for_each_element(block, reference::written_rows(a) * across, [&](std::int64_t at) {
      const Divided place = divided(at, across);
      const std::int64_t i = place.quotient, j = place.remainder * kQuantizeRun;
      const int n = left_of(a.columns, j, kQuantizeRun);
      Run<std::uint8_t, kQuantizeRun> codes = {};
      if (a.packed) {
        const auto pairs = load_run<kQuantizeRun / 2>(a.codes + i * a.codes_stride + j / 2, (n + 1) / 2);
        for (int e = 0; e < kQuantizeRun; ++e)
          codes.at[e] = e % 2 != 0 ? pairs.at[e / 2] >> 4 : pairs.at[e / 2] & 15;
      } else {
        codes = load_run<kQuantizeRun>(a.codes + i * a.codes_stride + j, n);
      }
      const bool shared = a.block_columns % kQuantizeRun == 0;
      float scale = scale_of(a, i, j);
      Run<Bf16, kQuantizeRun> values = {};
      TENON_UNROLL
      for (int e = 0; e < kQuantizeRun; ++e) {
        if (e >= n) continue;
        if (!shared && e > 0) scale = scale_of(a, i, j + e);
        values.at[e] = to_bf16(decode(codes.at[e], kElement) * scale);
      }
      store_run<kQuantizeRun>(a.values + i * a.values_stride + j, values, n);
    });
  }
};

}  // namespace tenon::kernels::cuda
