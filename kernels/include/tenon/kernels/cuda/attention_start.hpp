// Chooses the bodies of attention: in bf16 those that keep logits in registers (attention_warps.hpp), for the
// narrowest width that holds a head; else those that keep them in shared memory. `launch(what, body)` starts
// a body: on a stream, or on the host in tests. The same place has the same bits whether it is computed alone
// or with its sequence.
#pragma once

#include <tenon/kernels/cuda/attention.hpp>
#include <tenon/kernels/cuda/attention_backward.hpp>
#include <tenon/kernels/cuda/cached_attention.hpp>

#include <type_traits>

namespace tenon::kernels::cuda {

/// Calls fn(std::integral_constant<int, width>) with the width of the bodies for such heads, 0 for those in
/// shared memory.
template <class S, class Fn>
void with_attention_width(std::int64_t d_head, Fn fn) {
  if constexpr (std::is_same_v<S, Bf16>) {
    if (d_head <= 32) return fn(std::integral_constant<int, 32>{});
    if (d_head <= 64) return fn(std::integral_constant<int, 64>{});
    if (d_head <= 128) return fn(std::integral_constant<int, 128>{});
  }
  fn(std::integral_constant<int, 0>{});
}

template <class S, class Launch>
void start_attention(const AttentionArgs<S>& args, Launch launch) {
  with_attention_width<S>(args.d_head, [&](auto width) {
    if constexpr (width() > 0) {
      launch("attention", AttentionForwardWarps<width()>{args});
    } else {
      launch("attention", AttentionForward<S>{args});
    }
  });
}

/// `row_sums`: memory of a number per query and head, which this fills.
template <class S, class Launch>
void start_attention_backward(const AttentionArgs<S>& args, Arith<S>* row_sums, Launch launch) {
  launch("attention backward: sums", AttentionRowSums<S>{args, row_sums});
  with_attention_width<S>(args.d_head, [&](auto width) {
    if constexpr (width() > 0) {
      launch("attention backward: dq", AttentionQueryGradientWarps<width()>{args, row_sums});
      launch("attention backward: dk, dv", AttentionKeyGradientsWarps<width()>{args, row_sums});
    } else {
      launch("attention backward: dq", AttentionQueryGradient<S>{args, row_sums});
      launch("attention backward: dk, dv", AttentionKeyGradients<S>{args, row_sums});
    }
  });
}

template <class S, class Launch>
void start_cached_attention(const CachedPass<S>& pass, Launch launch) {
  launch("cached attention: keep", KeepPlaces<S>{pass});
  with_attention_width<S>(pass.args.d_head, [&](auto width) {
    launch("cached attention", CachedAttentionForward<S, width()>{pass});
  });
}

}  // namespace tenon::kernels::cuda
