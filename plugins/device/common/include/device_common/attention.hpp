// Arguments of causal attention (family Attention): the check of a spec, and the tensors of a call as
// pointers. Does not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/attention.hpp>
#include <tenon/ops/attention.hpp>

#include <string>

namespace tenon::device_arguments {

inline void check_attention(const AttentionSpec& spec) {
  if (spec.batch < 0 || spec.time < 0 || spec.heads <= 0 || spec.head_width <= 0 || spec.window < 0) {
    refuse_config("attention needs heads and head_width of at least 1 and window of at least 0, found " +
                  std::to_string(spec.heads) + ", " + std::to_string(spec.head_width) + " and " +
                  std::to_string(spec.window));
  }
  if (spec.kv_heads < 0 || (spec.kv_heads > 0 && spec.heads % spec.kv_heads != 0)) {
    refuse_config("attention needs kv_heads that divide the heads, found kv_heads " +
                  std::to_string(spec.kv_heads) + " and heads " + std::to_string(spec.heads));
  }
  if (spec.keys != 0 && spec.keys < spec.time) {
    refuse_config("attention needs at least as many keys as queries, found keys " +
                  std::to_string(spec.keys) + " and time " + std::to_string(spec.time));
  }
}

/// The kernels' arguments for a checked spec whose rows are contiguous.
template <class S>
class AttentionShape {
 public:
  explicit AttentionShape(const AttentionSpec& spec) {
    args_.batch = spec.batch;
    args_.time = spec.time;
    args_.heads = spec.heads;
    args_.d_head = spec.head_width;
    args_.kv_heads = spec.kv_heads > 0 ? spec.kv_heads : spec.heads;
    args_.keys = spec.keys > 0 ? spec.keys : spec.time;
    args_.window = spec.window;
    args_.scale = static_cast<kernels::Arith<S>>(spec.logit_scale);
    args_.q_row_stride = args_.out_row_stride = args_.dq_row_stride = spec.heads * spec.head_width;
    args_.kv_row_stride = args_.dkv_row_stride = args_.kv_heads * spec.head_width;
  }

  /// Arguments without pointers.
  const kernels::AttentionArgs<S>& args() const { return args_; }
  std::int64_t elements() const { return args_.batch * args_.time * args_.q_row_stride; }
  std::int64_t key_elements() const { return args_.batch * args_.keys * args_.kv_row_stride; }
  std::int64_t queries() const { return args_.batch * args_.heads * args_.time; }

  kernels::AttentionArgs<S> forward(const TensorView& q, const TensorView& k, const TensorView& v,
                                    const AttentionMasks& masks, const TensorView& y, const TensorView& lse,
                                    const char* where) const {
    auto args = args_;
    args.q = checked<S>(q, elements(), where, "q");
    args.k = checked<S>(k, key_elements(), where, "k");
    args.v = checked<S>(v, key_elements(), where, "v");
    const std::int64_t keys = args.batch * args.keys;
    args.key_mask = checked_or_null<std::uint8_t>(masks.keys, keys, where, "masks.keys");
    args.documents = checked_or_null<std::int32_t>(masks.documents, keys, where, "masks.documents");
    args.out = checked<S>(y, elements(), where, "y");
    args.lse = checked<kernels::Arith<S>>(lse, queries(), where, "lse");
    return args;
  }

  /// Completes the arguments of forward().
  void backward(kernels::AttentionArgs<S>& args, const TensorView& dy, const TensorView& dq,
                const TensorView& dk, const TensorView& dv, const char* where) const {
    args.dout = checked<S>(dy, elements(), where, "dy");
    args.dq = checked<S>(dq, elements(), where, "dq");
    args.dk = checked<S>(dk, key_elements(), where, "dk");
    args.dv = checked<S>(dv, key_elements(), where, "dv");
  }

 private:
  kernels::AttentionArgs<S> args_;
};

}  // namespace tenon::device_arguments
