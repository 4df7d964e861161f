// Attention to keys and values that are kept of the places before (contract: kernels/cached_attention.hpp).
// Here a sequence's keys and values are rows in order of their positions. A place has the bits that the
// forward pass gives it over the whole sequence, since its tile is computed as there.
#pragma once

#include <tenon/kernels/cached_attention.hpp>
#include <tenon/kernels/cuda/attention.hpp>

namespace tenon::kernels::cuda {

/// What a row of the batch goes on with; count may be 0.
struct CachedRow {
  std::int64_t first, count, kept;
};

/// All rows of a pass. `args` has the tensors of the whole batch, [batch, time, ...], and nothing of one row.
template <class S>
struct CachedPass {
  CachedAttentionArgs<S> args;
  std::int64_t batch = 0, time = 0;
  const CachedRow* rows = nullptr;  ///< [batch]
  std::uint8_t* state = nullptr;    ///< [sequences, sequence_bytes]
  std::int64_t sequence_bytes = 0;

  TENON_BOTH std::int64_t width() const { return args.heads * args.d_head; }
  TENON_BOTH std::int64_t kept_width() const { return args.kv_heads * args.d_head; }
  TENON_BOTH S* keys(std::int64_t kept) const { return reinterpret_cast<S*>(state + kept * sequence_bytes); }
  TENON_BOTH S* values(std::int64_t kept) const { return keys(kept) + args.positions * kept_width(); }
  TENON_BOTH std::int32_t* documents(std::int64_t kept) const {
    return reinterpret_cast<std::int32_t*>(values(kept) + args.positions * kept_width());
  }
};

/// Keeps the places that count, and clears the output of the others.
template <class S>
struct KeepPlaces {
  CachedPass<S> pass;

  Grid mesh() const { return grid_for(pass.batch * pass.time * pass.width()); }

  TENON_BOTH void operator()(const Block& block) const {
    const std::int64_t width = pass.width(), kept_width = pass.kept_width();
    for_each_element(block, pass.batch * pass.time * width, [&](std::int64_t i) {
      const Divided place = divided(i, width), in_row = divided(place.quotient, pass.time);
      const CachedRow row = pass.rows[in_row.quotient];
      const std::int64_t column = place.remainder;
      if (in_row.remainder >= row.count) {
        pass.args.out[i] = put<S>(0);
        return;
      }
      const std::int64_t position = row.first + in_row.remainder;
      if (column < kept_width) {
        const std::int64_t from = place.quotient * kept_width + column, to = position * kept_width + column;
        pass.keys(row.kept)[to] = pass.args.k[from];
        pass.values(row.kept)[to] = pass.args.v[from];
      }
      if (column == 0 && pass.args.documents != nullptr)
        pass.documents(row.kept)[position] = pass.args.documents[place.quotient];
    });
  }
};

/// Writes the output of the places that count. All of them are kept already. kWidth: of the body
/// in registers; 0: of the one in shared memory.
template <class S, int kWidth>
struct CachedAttentionForward {
  CachedPass<S> pass;

  Grid mesh() const {
    if constexpr (kWidth > 0) {
      return {pass.batch * pass.args.heads * tiles_of_row(), AttentionWarps<kWidth>::kBlockThreads,
              AttentionForwardWarps<kWidth>::kShared};
    }
    const AttentionTiles<S> tiles(pass.args.d_head);
    return {pass.batch * pass.args.heads * tiles_of_row() * tiles.slices, kThreads,
            attention_forward_shared<S>(pass.args.d_head)};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const CachedAttentionArgs<S>& args = pass.args;
    const AttentionTiles<S> tiles(args.d_head);
    const Divided item = divided(block.index(), tiles.slices);
    const Divided of_head = divided(item.quotient, tiles_of_row());
    const Divided of_row = divided(of_head.quotient, args.heads);
    const CachedRow row = pass.rows[of_row.quotient];
    const AttentionPlace place{0, of_row.remainder, of_head.remainder * AttentionTiles<S>::kRows,
                               static_cast<int>(item.remainder)};
    if (place.first >= row.count) return;
    AttentionArgs<S> all;
    all.batch = 1, all.time = row.count, all.heads = args.heads, all.d_head = args.d_head;
    all.kv_heads = args.kv_heads, all.keys = row.first + row.count;
    all.window = args.window, all.scale = args.scale;
    all.q_row_stride = all.out_row_stride = pass.width();
    all.kv_row_stride = pass.kept_width();
    all.q = args.q + of_row.quotient * pass.time * pass.width();
    all.out = args.out + of_row.quotient * pass.time * pass.width();
    all.k = pass.keys(row.kept);
    all.v = pass.values(row.kept);
    if (args.documents != nullptr) all.documents = pass.documents(row.kept);
    if constexpr (kWidth > 0) {
      attention_forward_warps<kWidth>(block, all, place);
    } else {
      attention_forward_tile(block, all, place);
    }
  }

 private:
  TENON_BOTH std::int64_t tiles_of_row() const {
    return (pass.time + AttentionTiles<S>::kRows - 1) / AttentionTiles<S>::kRows;
  }
};

}  // namespace tenon::kernels::cuda
