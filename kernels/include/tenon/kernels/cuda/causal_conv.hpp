// Kernel bodies of the causal convolution over time: y = SiLU(bias + sum of weight[width - 1 - j] x[t - j]),
// where place t - j exists and is of t's document. Forward and places that go on with sequences share the sum
// of one value, so they have the same bits.
#pragma once

#include <cmath>
#include <tenon/kernels/cuda/column_sums.hpp>
#include <tenon/kernels/cuda/rows.hpp>
#include <tenon/kernels/cuda/storage.hpp>

namespace tenon::kernels::cuda {

/// S: storage of values, P: of parameters.
template <class S, class P>
struct ConvArgs {
  using A = Arith<S>;
  std::int64_t batch = 0, time = 0, width = 1, channels = 0;
  std::int64_t columns = 0;                       ///< of a row of x
  const std::int64_t* channel_columns = nullptr;  ///< [channels], of them
  const S* x = nullptr;
  const std::int32_t* documents = nullptr;
  const P *weight = nullptr, *bias = nullptr;

  TENON_BOTH bool sees(std::int64_t row, std::int64_t t, std::int64_t j) const {
    return t >= j && (documents == nullptr || documents[row] == documents[row - j]);
  }
  TENON_BOTH A x_at(std::int64_t row, std::int64_t channel) const {
    return get(x[row * columns + channel_columns[channel]]);
  }
  TENON_BOTH A weight_at(std::int64_t channel, std::int64_t j) const {
    return get(weight[channel * width + width - 1 - j]);
  }
  /// The value before its map; earlier(j) is x of the place j before, and seen(j) whether it is seen.
  template <class Seen, class Earlier>
  TENON_BOTH A value(std::int64_t channel, Seen seen, Earlier earlier) const {
    A sum = get(bias[channel]);
    for (std::int64_t j = 0; j < width && seen(j); ++j) sum = sum + weight_at(channel, j) * earlier(j);
    return sum;
  }
  TENON_BOTH A value_at(std::int64_t row, std::int64_t t, std::int64_t channel) const {
    return value(
        channel, [&](std::int64_t j) { return sees(row, t, j); },
        [&](std::int64_t j) { return x_at(row - j, channel); });
  }
};

template <class A>
TENON_BOTH A sigmoid_of(A x) {
  return 1 / (1 + std::exp(-x));
}
/// The slope of x sigmoid(x).
template <class A>
TENON_BOTH A silu_slope(A x) {
  const A s = sigmoid_of(x);
  return s + x * s * (1 - s);
}

template <class S, class P>
struct ConvForward {
  ConvArgs<S, P> args;
  S* y;

  Grid mesh() const { return grid_for(args.batch * args.time * args.channels); }

  TENON_BOTH void operator()(const Block& block) const {
    const ConvForward& a = *this;
    const ConvArgs<S, P>& g = args;
    for_each_element(block, g.batch * g.time * g.channels, [&](std::int64_t i) {
      const Divided of_row = divided(i, g.channels);
      const auto v = g.value_at(of_row.quotient, of_row.quotient % g.time, of_row.remainder);
      a.y[i] = put<S>(v * sigmoid_of(v));
    });
  }
};

/// dx, and sums over a tile of places of the gradients of weights and bias: parts [tiles of all sequences,
/// channels, width + 1], the bias last. A block has 64 places of 32 channels of a sequence.
template <class S, class P>
struct ConvBackward {
  using A = Arith<S>;
  static constexpr int kRows = 64, kChannels = 32;
  ConvArgs<S, P> args;
  const S* dy;
  S* dx;
  A* parts;

  static constexpr std::int64_t tiles(std::int64_t time) { return (time + kRows - 1) / kRows; }
  Grid mesh() const {
    const std::int64_t across = (args.channels + kChannels - 1) / kChannels;
    return {args.batch * tiles(args.time) * across, kThreads,
            sizeof(A) * static_cast<std::size_t>(kRows + args.width - 1) * kChannels};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const ConvBackward& a = *this;
    const ConvArgs<S, P>& g = args;
    const std::int64_t across = (g.channels + kChannels - 1) / kChannels;
    const std::int64_t first = block.index() % across * kChannels, tile = block.index() / across;
    const std::int64_t b = tile / tiles(g.time), begin = tile % tiles(g.time) * kRows;
    const std::int64_t end = begin + kRows < g.time ? begin + kRows : g.time;
    // Places after the tile, as far as they see into it.
    const std::int64_t seen_end = end + g.width - 1 < g.time ? end + g.width - 1 : g.time;
    A* const dv = block.shared<A>();
    block.each([&](int thread) {
      const std::int64_t channel = first + thread % kChannels;
      if (channel >= g.channels) return;
      for (std::int64_t t = begin + thread / kChannels; t < seen_end; t += kThreads / kChannels) {
        const std::int64_t row = b * g.time + t;
        dv[(t - begin) * kChannels + thread % kChannels] =
            get(a.dy[row * g.channels + channel]) * silu_slope(g.value_at(row, t, channel));
      }
    });
    block.each([&](int thread) {
      const int lane = thread % kChannels;
      const std::int64_t channel = first + lane;
      if (channel >= g.channels) return;
      for (std::int64_t t = begin + thread / kChannels; t < end; t += kThreads / kChannels) {
        const std::int64_t row = b * g.time + t;
        A sum = 0;
        for (std::int64_t j = 0; j < g.width && t + j < seen_end && g.sees(row + j, t + j, j); ++j)
          sum = sum + dv[(t + j - begin) * kChannels + lane] * g.weight_at(channel, j);
        a.dx[row * g.columns + g.channel_columns[channel]] = put<S>(sum);
      }
      for (std::int64_t k = thread / kChannels; k <= g.width; k += kThreads / kChannels) {
        const std::int64_t j = g.width - 1 - k;  // -1: the bias
        A sum = 0;
        for (std::int64_t t = begin; t < end; ++t) {
          const std::int64_t row = b * g.time + t;
          const A own = dv[(t - begin) * kChannels + lane];
          if (j < 0) {
            sum = sum + own;
          } else if (g.sees(row, t, j)) {
            sum = sum + own * g.x_at(row - j, channel);
          }
        }
        a.parts[(tile * g.channels + channel) * (g.width + 1) + k] = sum;
      }
    });
  }
};

/// Gradients of weights and bias: the sums over tiles, in order.
template <class S, class P>
struct ConvParameters {
  using A = Arith<S>;
  std::int64_t tiles, channels, width;
  const A* parts;
  P *dweight, *dbias;
  bool accumulate;

  Grid mesh() const { return grid_for(channels * (width + 1)); }

  TENON_BOTH void operator()(const Block& block) const {
    const ConvParameters& a = *this;
    const std::int64_t n = channels * (width + 1);
    for_each_element(block, n, [&](std::int64_t i) {
      A sum = 0;
      for (std::int64_t tile = 0; tile < a.tiles; ++tile) sum = sum + a.parts[tile * n + i];
      const Divided of_channel = divided(i, a.width + 1);
      P& to = of_channel.remainder < a.width ? a.dweight[of_channel.quotient * a.width + of_channel.remainder]
                                             : a.dbias[of_channel.quotient];
      to = put<P>(a.accumulate ? get(to) + sum : sum);
    });
  }
};

/// The row's place in its sequence, places that count, and the sequence; count may be 0.
struct ConvRow {
  std::int64_t first, count, kept;
};

/// A pass on kept columns: the last width - 1 of x in S, and their documents after them.
template <class S, class P>
struct ConvPass {
  ConvArgs<S, P> args;
  const ConvRow* rows;      ///< [batch]
  std::uint8_t* sequences;  ///< [sequences, sequence_bytes]
  std::int64_t sequence_bytes;
  S* y;

  static constexpr std::int64_t values_bytes(std::int64_t width, std::int64_t channels) {
    return ((width - 1) * channels * std::int64_t{sizeof(S)} + 3) / 4 * 4;
  }
  static constexpr std::int64_t bytes(std::int64_t width, std::int64_t channels) {
    return values_bytes(width, channels) + (width - 1) * std::int64_t{sizeof(std::int32_t)};
  }
  TENON_BOTH S* values(const ConvRow& row) const {
    return reinterpret_cast<S*>(sequences + row.kept * sequence_bytes);
  }
  TENON_BOTH std::int32_t* numbers(const ConvRow& row) const {
    const std::int64_t values = ((args.width - 1) * args.channels * std::int64_t{sizeof(S)} + 3) / 4 * 4;
    return reinterpret_cast<std::int32_t*>(sequences + row.kept * sequence_bytes + values);
  }
  /// The number of place t, which may be a kept one: -1 is the last.
  TENON_BOTH std::int32_t document(std::int64_t b, const ConvRow& row, std::int64_t t) const {
    if (args.documents == nullptr) return 0;
    return t >= 0 ? args.documents[b * args.time + t] : numbers(row)[args.width - 1 + t];
  }
  TENON_BOTH S stored(std::int64_t b, const ConvRow& row, std::int64_t t, std::int64_t channel) const {
    return t >= 0 ? args.x[(b * args.time + t) * args.columns + args.channel_columns[channel]]
                  : values(row)[(args.width - 1 + t) * args.channels + channel];
  }
};

/// Outputs of a pass.
template <class S, class P>
struct ConvGoOn {
  ConvPass<S, P> pass;

  Grid mesh() const { return grid_for(pass.args.batch * pass.args.time * pass.args.channels); }

  TENON_BOTH void operator()(const Block& block) const {
    const ConvPass<S, P>& a = pass;
    const ConvArgs<S, P>& g = a.args;
    for_each_element(block, g.batch * g.time * g.channels, [&](std::int64_t i) {
      const Divided of_place = divided(i, g.channels), of_row = divided(of_place.quotient, g.time);
      const std::int64_t b = of_row.quotient, t = of_row.remainder, channel = of_place.remainder;
      const ConvRow row = a.rows[b];
      if (t >= row.count) {
        a.y[i] = put<S>(0);
        return;
      }
      const auto v = g.value(
          channel,
          [&](std::int64_t j) {
            return row.first + t >= j && a.document(b, row, t - j) == a.document(b, row, t);
          },
          [&](std::int64_t j) { return get(a.stored(b, row, t - j, channel)); });
      a.y[i] = put<S>(v * sigmoid_of(v));
    });
  }
};

/// Keeps the last columns, after all outputs are written. A thread has a channel, or the documents, in
/// ascending order, so that it reads a kept one before it writes it.
template <class S, class P>
struct ConvKeep {
  ConvPass<S, P> pass;

  Grid mesh() const { return grid_for(pass.args.batch * (pass.args.channels + 1)); }

  TENON_BOTH void operator()(const Block& block) const {
    const ConvPass<S, P>& a = pass;
    const ConvArgs<S, P>& g = a.args;
    const std::int64_t tail = g.width - 1;
    for_each_element(block, g.batch * (g.channels + 1), [&](std::int64_t i) {
      const Divided of_row = divided(i, g.channels + 1);
      const std::int64_t b = of_row.quotient, channel = of_row.remainder;
      const ConvRow row = a.rows[b];
      if (row.count == 0) return;
      for (std::int64_t k = 0; k < tail; ++k) {
        const std::int64_t t = row.count - tail + k;
        if (row.first + t < 0) continue;
        if (channel < g.channels) {
          a.values(row)[k * g.channels + channel] = a.stored(b, row, t, channel);
        } else {
          a.numbers(row)[k] = a.document(b, row, t);
        }
      }
    });
  }
};

}  // namespace tenon::kernels::cuda
