// Reference attention to kept keys: the reference's forward pass over the last places of the whole sequence.
#pragma once

#include <tenon/kernels/cached_attention.hpp>
#include <tenon/kernels/reference/attention.hpp>
#include <vector>

namespace tenon::kernels::reference {

template <class S>
std::int64_t cached_attention_workspace(const CachedAttentionArgs<S>&) {
  return 0;
}

template <class S>
void cached_attention_forward(const CachedAttentionArgs<S>& args, std::int64_t item_begin,
                              std::int64_t item_end, Arith<S>*) {
  AttentionArgs<S> whole;
  whole.batch = 1, whole.time = args.count, whole.heads = args.heads, whole.d_head = args.d_head;
  whole.kv_heads = args.kv_heads, whole.keys = args.first + args.count;
  whole.window = args.window, whole.scale = args.scale;
  whole.q_row_stride = whole.out_row_stride = args.heads * args.d_head;
  whole.kv_row_stride = args.kv_heads * args.d_head;
  std::vector<S> k(whole.keys * whole.kv_row_stride), v(k.size());
  for (std::int64_t position = 0; position < whole.keys; ++position)
    for (std::int64_t head = 0; head < args.kv_heads; ++head) {
      const KeptPlace at = kept_place(args, head, position);
      const std::int64_t to = position * whole.kv_row_stride + head * args.d_head;
      for (std::int64_t j = 0; j < args.d_head; ++j) {
        k[to + j] = args.keys[at.key + j * at.key_step];
        v[to + j] = args.values[at.value + j];
      }
    }
  whole.q = args.q, whole.k = k.data(), whole.v = v.data(), whole.out = args.out;
  whole.documents = args.kept_documents;
  attention_forward(whole, item_begin, item_end, nullptr);
}

}  // namespace tenon::kernels::reference
