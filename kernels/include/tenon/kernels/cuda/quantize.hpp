// Kernel bodies of block-scaled quantizers: the functions that define every bit (reference/quantize.hpp),
// spread over threads. Here: one scale for the matrix, one thread per block, and decoding. Blocks of common
// shapes go through tiles in shared memory (quantize_tile.hpp); start_quantize (quantize_start.hpp) chooses.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/storage.hpp>
#include <tenon/kernels/reference/quantize.hpp>

namespace tenon::kernels::cuda {

/// Elements of a row that one thread processes at once.
inline constexpr int kQuantizeRun = 8;

/// draw_of() of stochastic.hpp for elements that are visited in order: four random words serve 16 neighbours
/// of 8 bits each, or 4 of 24 bits, and are kept until another group is requested.
template <class S>
class Draws {
 public:
  TENON_BOTH explicit Draws(const QuantizeArgs<S>& a) : a_(a), down_(reference::runs_down(a)) {}

  TENON_BOTH std::uint32_t operator()(std::int64_t i, std::int64_t j) {
    const auto row = static_cast<std::uint64_t>(a_.origin_row + i);
    const auto column = static_cast<std::uint64_t>(a_.origin_column + j);
    const std::uint64_t along = down_ ? row : column, line = down_ ? column : row;
    const auto e = static_cast<std::uint32_t>(along % 16);
    const bool bytes = a_.random_bits == 8;
    const std::uint32_t part = bytes ? 0 : e / 4;
    if (!drawn_ || along / 16 != group_ || line != line_ || part != part_) {
      const auto words = draw_words({a_.key, a_.step, a_.micro}, along / 16, line, part);
      first_ = words[0], second_ = words[1], third_ = words[2], fourth_ = words[3];
      group_ = along / 16, line_ = line, part_ = part, drawn_ = true;
    }
    return bytes ? word(e / 4) >> (8 * (e % 4)) & 0xffu : word(e % 4) & 0xffffffu;
  }

 private:
  /// An array with a variable index would be in memory.
  TENON_BOTH std::uint32_t word(std::uint32_t index) const {
    return index < 2 ? (index == 0 ? first_ : second_) : (index == 2 ? third_ : fourth_);
  }

  const QuantizeArgs<S>& a_;
  bool down_, drawn_ = false;
  std::uint64_t group_ = 0, line_ = 0;
  std::uint32_t part_ = 0, first_ = 0, second_ = 0, third_ = 0, fourth_ = 0;
};

/// encode_element() of the reference, with cached draws. Bodies of the common shapes exist once per element
/// format, whose layout is then a constant.
template <Element kElement, class S>
TENON_BOTH std::uint8_t encode_drawn(const QuantizeArgs<S>& a, float x,
                                     const reference::BlockNumbers& numbers, std::int64_t i, std::int64_t j,
                                     Draws<S>& draws) {
  float scaled = x * numbers.encode;
  if (a.scaling == Scaling::kTwoLevel) scaled = clamp6(scaled);
  if (!a.stochastic) return encode(scaled, kElement);
  return encode_stochastic(scaled, kElement, draws(i, j), a.random_bits);
}

/// A thread's results for elements (i, j) ... (i, j + n - 1), j even; packed codes are two per byte.
template <int N>
struct Rounded {
  Run<std::uint8_t, N> codes = {};
  Run<Bf16, N> values = {};
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
  Draws<S> draws(a);
  Rounded<kQuantizeRun> rounded;
  TENON_UNROLL
  for (int e = 0; e < kQuantizeRun; ++e) {
    if (e >= n) continue;
    rounded.codes.at[e] = encode_drawn<kElement>(a, reference::get(x.at[e]), numbers, i, j + e, draws);
    rounded.values.at[e] = to_bf16(decode(rounded.codes.at[e], kElement) * numbers.decode);
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
      const std::int64_t i = at / across, j = at % across * kQuantizeRun;
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
    const std::uint8_t bits = a.scales[i / a.block_rows * a.scales_stride + j / a.block_columns];
    return a.scaling == Scaling::kTwoLevel ? decode(bits, Element::kE4M3) : decode_e8m0(bits);
  }

  TENON_BOTH void operator()(const Block& block) const {
    const QuantizeArgs<S>& a = args;
    const std::int64_t across = pieces_of(a.columns, kQuantizeRun);
    for_each_element(block, reference::written_rows(a) * across, [&](std::int64_t at) {
      const std::int64_t i = at / across, j = at % across * kQuantizeRun;
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
