// Attention of the places of one sequence to keys and values that are kept from pass to pass: those of the
// places before, and of these places themselves. Every place sees what attention.hpp shows it over the whole
// sequence, and each kernel set gives it the bits of its own forward pass there, whatever the split into
// passes (the set amx those of avx512).
// A sequence's keys and values are in blocks of 64 positions, in a block one key head after the other: keys
// as [d_head, positions of the block], so that 16 neighbouring keys are one vector, values as [positions,
// d_head].
#pragma once

#include <tenon/kernels/attention.hpp>

namespace tenon::kernels {

/// Positions of a block of kept keys and values.
inline constexpr std::int64_t kKeptBlock = 64;

template <class S>
struct CachedAttentionArgs {
  std::int64_t heads = 0, d_head = 0;
  std::int64_t kv_heads = 0;   ///< divides heads
  std::int64_t positions = 0;  ///< for which keys and values have room
  std::int64_t window = 0;     ///< 0: global
  Arith<S> scale = 1;
  std::int64_t first = 0, count = 0;  ///< the places are at positions first .. first + count - 1
  const S* q = nullptr;               ///< [count, heads x d_head]
  const S* k = nullptr;               ///< [count, kv_heads x d_head]
  const S* v = nullptr;
  const std::int32_t* documents = nullptr;  ///< [count]; null: a sequence is one document
  S* keys = nullptr;
  S* values = nullptr;
  std::int32_t* kept_documents = nullptr;  ///< [positions]
  S* out = nullptr;                        ///< [count, heads x d_head]
};

/// Element 0 of a position of a key head in keys, the distance to element 1, and element 0 in values.
struct KeptPlace {
  std::int64_t key, key_step, value;
};
template <class S>
KeptPlace kept_place(const CachedAttentionArgs<S>& args, std::int64_t key_head, std::int64_t position) {
  const std::int64_t begin = position / kKeptBlock * kKeptBlock, left = args.positions - begin;
  const std::int64_t width = left < kKeptBlock ? left : kKeptBlock;
  const std::int64_t head = (begin * args.kv_heads + key_head * width) * args.d_head;
  return {head + position - begin, width, head + (position - begin) * args.d_head};
}

/// Keeps the places [begin, end) of the pass.
template <class S>
void keep_places(const CachedAttentionArgs<S>& args, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t head = 0; head < args.kv_heads; ++head) {
      const KeptPlace at = kept_place(args, head, args.first + t);
      const std::int64_t from = (t * args.kv_heads + head) * args.d_head;
      for (std::int64_t j = 0; j < args.d_head; ++j) {
        args.keys[at.key + j * at.key_step] = args.k[from + j];
        args.values[at.value + j] = args.v[from + j];
      }
    }
    if (args.documents != nullptr) args.kept_documents[args.first + t] = args.documents[t];
  }
}

/// Units of work: (head, block of queries), the blocks of a head one after the other. Any split among threads
/// gives the same bits; successive heads of one key head in one call read its keys once.
template <class S>
std::int64_t cached_attention_items(const CachedAttentionArgs<S>& args) {
  return args.heads * ((args.count + kAttentionQueryBlock - 1) / kAttentionQueryBlock);
}

template <class S>
struct CachedAttentionOps {
  /// Arith<S> elements of scratch that each concurrent caller provides.
  std::int64_t (*workspace)(const CachedAttentionArgs<S>& args);
  /// Writes out. All places are kept already.
  void (*forward)(const CachedAttentionArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                  Arith<S>* workspace);
};

}  // namespace tenon::kernels
