// Shared by the bodies of attention (attention.hpp, attention_backward.hpp): the sizes of tiles and their
// places in shared memory, loading and storing of rows, and the visibility of keys to queries.
//
// A block works on one tile of queries or keys of one head and loops over tiles of the other side; logits
// exist for one pair of tiles at a time. Heads wider than a slice of 128 columns are read slice by slice, and
// each slice of a result belongs to a block of its own, which recomputes the logits.
#pragma once

#include <cmath>
#include <limits>
#include <tenon/kernels/attention.hpp>
#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/tile_products.hpp>

namespace tenon::kernels::cuda {

/// Sizes for storage type S; extents of tiles and strides count elements, the rest bytes.
template <class S>
struct AttentionTiles {
  using A = Arith<S>;
  static constexpr bool kNarrow = !std::is_same_v<S, A>;
  static constexpr int kRows = sizeof(A) == sizeof(double) ? 32 : 64;
  static constexpr int kSlice = 128;
  static constexpr int kParts = kThreads / kRows;  ///< threads that share a row of logits
  static constexpr int kScoreStride = kRows + 4;
  /// Stride of probabilities and their gradients as operands; they replace the logits where S is its own
  /// Arith.
  static constexpr int kWeightStride = kNarrow ? kRows + 8 : kScoreStride;
  static constexpr std::size_t kScores = sizeof(A) * kRows * kScoreStride;
  static constexpr std::size_t kWeights = kNarrow ? sizeof(S) * kRows * kWeightStride : 0;
  static constexpr std::size_t kPerRow = kRows * sizeof(A);

  int slices;  ///< of a head
  int width;   ///< columns of a slice, padded with zeros
  int stride, result_stride;
  std::size_t operand, result;

  /// Strides are odd, or an odd number of 16 bytes: rows begin at different banks.
  TENON_BOTH explicit AttentionTiles(std::int64_t d_head)
      : slices(static_cast<int>((d_head + kSlice - 1) / kSlice)),
        width(d_head >= kSlice ? kSlice : static_cast<int>((d_head + kTileStep - 1) / kTileStep * kTileStep)),
        stride(width + (kNarrow ? 8 : 1)),
        result_stride(width + 4),
        operand(rounded_up(kRows * stride * sizeof(S))),
        result(kRows * result_stride * sizeof(A)) {}

  TENON_BOTH static std::size_t rounded_up(std::size_t bytes) { return (bytes + 127) / 128 * 128; }
};

/// The tile of a block: rows of a query head, or of a key head. Blocks of late queries, which see most keys,
/// come first.
struct AttentionPlace {
  std::int64_t batch, head, first;  ///< of the tile's rows
  int slice;
};

/// Whose rows are shared out among blocks.
enum class AttentionSide { kQueries, kKeys };

template <class S>
TENON_BOTH AttentionPlace attention_place(const AttentionArgs<S>& args, const Block& block, int slices,
                                          AttentionSide side) {
  const bool queries = side == AttentionSide::kQueries;
  const std::int64_t of_one = queries ? args.heads : args.kv_heads, extent = queries ? args.time : args.keys;
  const std::int64_t rows = AttentionTiles<S>::kRows, tiles = (extent + rows - 1) / rows;
  const std::int64_t heads = args.batch * of_one, item = block.index() / slices;
  const std::int64_t tile = item / heads, head = item % heads;
  return {head / of_one, head % of_one, (queries ? tiles - 1 - tile : tile) * rows,
          static_cast<int>(block.index() % slices)};
}

template <class S>
Grid attention_grid(const AttentionArgs<S>& args, AttentionSide side, std::size_t shared) {
  const AttentionTiles<S> tiles(args.d_head);
  const bool queries = side == AttentionSide::kQueries;
  const std::int64_t heads = queries ? args.heads : args.kv_heads, extent = queries ? args.time : args.keys;
  const std::int64_t rows = AttentionTiles<S>::kRows;
  return {args.batch * heads * ((extent + rows - 1) / rows) * tiles.slices, kThreads, shared};
}

/// As in kernels/attention.hpp; no query sees a key beyond the end.
template <class S>
TENON_BOTH bool attention_visible(const AttentionArgs<S>& args, std::int64_t batch, std::int64_t query,
                                  std::int64_t key) {
  const std::int64_t position = args.keys - args.time + query, row = batch * args.keys;
  if (key > position || query >= args.time) return false;
  if (args.window > 0 && key <= position - args.window) return false;
  if (args.documents != nullptr && args.documents[row + key] != args.documents[row + position]) return false;
  return args.key_mask == nullptr || args.key_mask[row + key] != 0;
}

/// The first of the ascending numbers [begin, end) that is `number` or more, or, with `above`, more; else
/// end.
TENON_BOTH inline std::int64_t attention_first_of(const std::int32_t* numbers, std::int64_t begin,
                                                  std::int64_t end, std::int32_t number, bool above) {
  while (begin < end) {
    const std::int64_t middle = (begin + end) / 2;
    if (above ? numbers[middle] > number : numbers[middle] >= number)
      end = middle;
    else
      begin = middle + 1;
  }
  return begin;
}

/// The first tile of keys that is visible to a tile of queries, and the end of its last.
template <class S>
TENON_BOTH std::int64_t attention_first_keys(const AttentionArgs<S>& args, const AttentionPlace& place) {
  const std::int64_t position = args.keys - args.time + place.first;
  std::int64_t key = args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
  if (args.documents != nullptr) {
    const std::int32_t* const documents = args.documents + place.batch * args.keys;
    const std::int64_t begin = attention_first_of(documents, 0, position, documents[position], false);
    if (begin > key) key = begin;
  }
  return key / AttentionTiles<S>::kRows * AttentionTiles<S>::kRows;
}
template <class S>
TENON_BOTH std::int64_t attention_end_keys(const AttentionArgs<S>& args, const AttentionPlace& place) {
  const std::int64_t end = args.keys - args.time + place.first + AttentionTiles<S>::kRows;
  return end < args.keys ? end : args.keys;
}
/// The first tile of queries that sees a tile of keys, and the last query that does; negative: there is none.
template <class S>
TENON_BOTH std::int64_t attention_first_queries(const AttentionArgs<S>& args, std::int64_t first_key) {
  const std::int64_t query = first_key - (args.keys - args.time);
  return query <= 0 ? 0 : query / AttentionTiles<S>::kRows * AttentionTiles<S>::kRows;
}
template <class S>
TENON_BOTH std::int64_t attention_last_query(const AttentionArgs<S>& args, const AttentionPlace& place) {
  const std::int64_t last_tile = place.first + AttentionTiles<S>::kRows - 1;
  const std::int64_t last_key = last_tile < args.keys - 1 ? last_tile : args.keys - 1;
  std::int64_t seen = args.keys - 1;
  if (args.window > 0 && last_key + args.window - 1 < seen) seen = last_key + args.window - 1;
  if (args.documents != nullptr) {
    const std::int32_t* const documents = args.documents + place.batch * args.keys;
    const std::int64_t end =
        attention_first_of(documents, last_key + 1, args.keys, documents[last_key], true);
    if (end - 1 < seen) seen = end - 1;
  }
  return seen - (args.keys - args.time);
}

/// 16 bytes of a row, which a thread moves at once.
template <class S>
struct alignas(16) RowPiece {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(S));
  S at[kCount];
};

/// Rows of one head of a tensor: of q, out or their gradients, or of k, v or theirs.
template <class T>
struct HeadRows {
  T* x;  ///< the whole tensor
  std::int64_t begin, row_stride, rows;
};
template <class S, class T>
TENON_BOTH HeadRows<T> query_rows(const AttentionArgs<S>& args, std::int64_t batch, std::int64_t head, T* x,
                                  std::int64_t row_stride) {
  return {x, batch * args.time * row_stride + head * args.d_head, row_stride, args.time};
}
template <class S, class T>
TENON_BOTH HeadRows<T> key_rows(const AttentionArgs<S>& args, std::int64_t batch, std::int64_t key_head, T* x,
                                std::int64_t row_stride) {
  return {x, batch * args.keys * row_stride + key_head * args.d_head, row_stride, args.keys};
}

/// One thread's share of loading a slice of rows into a tile; zeros beyond the last row and the head.
template <class S>
TENON_BOTH void load_rows(const AttentionArgs<S>& args, const AttentionTiles<S>& tiles,
                          const HeadRows<const S>& of, std::int64_t first, int slice, S* tile, int thread) {
  using Piece = RowPiece<S>;
  constexpr int kRows = AttentionTiles<S>::kRows;
  const std::int64_t begin = std::int64_t{slice} * AttentionTiles<S>::kSlice;
  const std::int64_t row_stride = of.row_stride;
  const S* const from = of.x + of.begin + first * row_stride + begin;
  // Then every row begins at a multiple of a piece, and ends at one.
  const bool pieces = reinterpret_cast<std::uintptr_t>(of.x) % sizeof(Piece) == 0 &&
                      row_stride % Piece::kCount == 0 && args.d_head % Piece::kCount == 0;
  const int step = pieces ? Piece::kCount : 1, across = tiles.width / step;
  for (int i = thread; i < kRows * across; i += kThreads) {
    const int row = i / across, column = i % across * step;
    S* const to = tile + row * tiles.stride + column;
    const bool inside = first + row < of.rows && begin + column < args.d_head;
    if (!pieces) {
      *to = inside ? from[row * row_stride + column] : put<S>(0);
      continue;
    }
    Piece piece;
    if (inside) {
      piece = *reinterpret_cast<const Piece*>(from + row * row_stride + column);
    } else {
      TENON_UNROLL
      for (int l = 0; l < Piece::kCount; ++l) piece.at[l] = put<S>(0);
    }
    if constexpr (AttentionTiles<S>::kNarrow) {
      *reinterpret_cast<Piece*>(to) = piece;
    } else {
      // Rows of an odd stride begin anywhere.
      TENON_UNROLL
      for (int l = 0; l < Piece::kCount; ++l) to[l] = piece.at[l];
    }
  }
}

/// One thread's share of storing a slice of results, each through `value(row, sum)`.
template <class S, class F>
TENON_BOTH void store_rows(const AttentionArgs<S>& args, const AttentionTiles<S>& tiles,
                           const AttentionPlace& place, const Arith<S>* result, const HeadRows<S>& of,
                           int thread, F value) {
  constexpr int kWarp = 32;
  for (int row = thread / kWarp; row < AttentionTiles<S>::kRows; row += kThreads / kWarp) {
    if (place.first + row >= of.rows) continue;
    S* const to = of.x + of.begin + (place.first + row) * of.row_stride;
    for (int column = thread % kWarp; column < tiles.width; column += kWarp) {
      const std::int64_t j = std::int64_t{place.slice} * AttentionTiles<S>::kSlice + column;
      if (j < args.d_head) to[j] = put<S>(value(row, result[row * tiles.result_stride + column]));
    }
  }
}

/// Products of tiles in the sizes of attention: scores = X Y', summed over slices.
template <class S>
TENON_BOTH void add_scores(const Block& block, const AttentionTiles<S>& tiles, const S* x, const S* y,
                           Arith<S>* scores, bool add) {
  constexpr int kRows = AttentionTiles<S>::kRows;
  multiply_tiles<Stored::kPlain, Stored::kTransposed>(
      block, TileProduct<S>{x, tiles.stride, y, tiles.stride, scores, AttentionTiles<S>::kScoreStride, kRows,
                            kRows, tiles.width, add});
}
/// result += W X, or W' X.
template <Stored StoredW, class S>
TENON_BOTH void add_weighted(const Block& block, const AttentionTiles<S>& tiles, const S* weights, const S* x,
                             Arith<S>* result) {
  constexpr int kRows = AttentionTiles<S>::kRows;
  multiply_tiles<StoredW, Stored::kPlain>(
      block, TileProduct<S>{weights, AttentionTiles<S>::kWeightStride, x, tiles.stride, result,
                            tiles.result_stride, kRows, tiles.width, kRows, true});
}

}  // namespace tenon::kernels::cuda
