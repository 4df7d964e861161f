// Convolutions of channels over earlier positions, with SiLU after them: y[t, c] = silu(bias[c] + sum over j
// < width of weight[c, width - 1 - j] x[t - j, c]), where position t - j exists and is of t's document. The
// sum begins with the bias and adds terms in ascending j; so places that go on with kept positions have the
// bits of the whole sequence. Channels are runs of columns of a wider row.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// Columns [from, from + width) of a wider row, which are columns [to, to + width) of a joined one.
struct JoinedRun {
  std::int64_t from = 0, to = 0, width = 0;
};

/// Positions of a block of forward, and channels of a block of backward; runs are at most so long there.
inline constexpr std::int64_t kConvPositions = 64, kConvChannels = 64;

template <class S>
struct CausalConvArgs {
  std::int64_t batch = 0, time = 0, width = 0;
  std::int64_t columns = 0;         ///< of a row of x
  std::int64_t channels = 0;        ///< of a row of y
  const JoinedRun* runs = nullptr;  ///< the channels, each of at most kConvChannels columns
  std::int64_t run_count = 0;
  const S* x = nullptr;
  const std::int32_t* documents = nullptr;  ///< [batch, time]; null: a sequence is one document
  const Arith<S>* weight = nullptr;         ///< [channels, width]
  const Arith<S>* bias = nullptr;
  S* y = nullptr;
  // Backward.
  const S* dy = nullptr;
  S* dx = nullptr;  ///< the runs alone are written
  Arith<S>* dweight = nullptr;
  Arith<S>* dbias = nullptr;
  bool accumulate = false;  ///< onto dweight and dbias
};

/// Places of one sequence that go on with kept ones: rows [row, row + count) of x and y, at position `first`.
template <class S>
struct ConvPlaces {
  std::int64_t row = 0, first = 0, count = 0;
  const S* kept = nullptr;                  ///< [width - 1, channels], the newest position last
  const std::int32_t* documents = nullptr;  ///< of the kept positions
};

/// Terms of position t: `before` positions are there before it, document(j) is that of position t - j.
template <class Document>
constexpr std::int64_t conv_terms(std::int64_t width, std::int64_t before, bool documents,
                                  Document document) {
  std::int64_t terms = 1;
  while (terms < width && terms <= before && (!documents || document(terms) == document(0))) ++terms;
  return terms;
}

template <class S>
struct CausalConvOps {
  /// Arith<S> elements of workspace that each concurrent caller provides, for all three.
  std::int64_t (*workspace)(const CausalConvArgs<S>& args);
  /// Blocks of kConvPositions positions of a sequence, sequence after sequence.
  void (*forward)(const CausalConvArgs<S>& args, std::int64_t block_begin, std::int64_t block_end,
                  Arith<S>* workspace);
  /// By runs; sums over positions have one order.
  void (*backward)(const CausalConvArgs<S>& args, std::int64_t run_begin, std::int64_t run_end,
                   Arith<S>* workspace);
  void (*step)(const CausalConvArgs<S>& args, const ConvPlaces<S>& places, std::int64_t run_begin,
               std::int64_t run_end, Arith<S>* workspace);
};

template <class S>
constexpr std::int64_t conv_blocks(const CausalConvArgs<S>& args) {
  return args.batch * ((args.time + kConvPositions - 1) / kConvPositions);
}

}  // namespace tenon::kernels
