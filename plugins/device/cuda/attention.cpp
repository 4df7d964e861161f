// Causal attention (family Attention) on the bodies of kernels/cuda/attention*.hpp.
#include "arguments.hpp"
#include "families.hpp"

#include <tenon/kernels/cuda/attention.hpp>
#include <tenon/kernels/cuda/attention_backward.hpp>

#include <string>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

template <class S>
class CudaAttentionKernel final : public AttentionKernel {
 public:
  CudaAttentionKernel(Queue& queue, const AttentionSpec& spec)
      : queue_(queue), width_(spec.heads * spec.head_width) {
    shape_.batch = spec.batch;
    shape_.time = spec.time;
    shape_.heads = spec.heads;
    shape_.d_head = spec.head_width;
    shape_.window = spec.window;
    shape_.scale = static_cast<A>(spec.logit_scale);
    shape_.qkv_row_stride = shape_.out_row_stride = shape_.dqkv_row_stride = width_;
  }

  /// One number per query, for backward.
  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(queries()) * sizeof(A); }

  void forward(TensorView q, TensorView k, TensorView v, TensorView key_mask, TensorView y, TensorView lse,
               TensorView scratch) override {
    constexpr const char* kWhere = "attention";
    const bodies::AttentionForward<S> body{inputs(q, k, v, key_mask, y, lse, kWhere)};
    check_scratch(scratch, kWhere);
    if (queries() > 0) queue_.launch(kWhere, body.grid(), body);
  }

  void backward(TensorView q, TensorView k, TensorView v, TensorView key_mask, TensorView y, TensorView lse,
                TensorView dy, TensorView dq, TensorView dk, TensorView dv, TensorView scratch) override {
    constexpr const char* kWhere = "attention backward";
    auto args = inputs(q, k, v, key_mask, y, lse, kWhere);
    args.dout = checked<S>(dy, elements(), kWhere, "dy");
    args.dq = checked<S>(dq, elements(), kWhere, "dq");
    args.dk = checked<S>(dk, elements(), kWhere, "dk");
    args.dv = checked<S>(dv, elements(), kWhere, "dv");
    check_scratch(scratch, kWhere);
    if (queries() == 0) return;
    A* const sums = scratch.as<A>();
    const bodies::AttentionRowSums<S> row_sums{args, sums};
    const bodies::AttentionQueryGradient<S> query{args, sums};
    const bodies::AttentionKeyGradients<S> keys{args, sums};
    queue_.launch("attention backward: sums", row_sums.grid(), row_sums);
    queue_.launch("attention backward: dq", query.grid(), query);
    queue_.launch("attention backward: dk, dv", keys.grid(), keys);
  }

 private:
  using A = Arith<S>;

  std::int64_t elements() const { return shape_.batch * shape_.time * width_; }
  std::int64_t queries() const { return shape_.batch * shape_.heads * shape_.time; }

  kernels::AttentionArgs<S> inputs(const TensorView& q, const TensorView& k, const TensorView& v,
                                   const TensorView& key_mask, const TensorView& y, const TensorView& lse,
                                   const char* where) const {
    auto args = shape_;
    args.q = checked<S>(q, elements(), where, "q");
    args.k = checked<S>(k, elements(), where, "k");
    args.v = checked<S>(v, elements(), where, "v");
    args.key_mask = checked_or_null<std::uint8_t>(key_mask, args.batch * args.time, where, "key_mask");
    args.out = checked<S>(y, elements(), where, "y");
    args.lse = checked<A>(lse, queries(), where, "lse");
    return args;
  }

  void check_scratch(const TensorView& scratch, const char* where) const {
    const auto needed = static_cast<std::int64_t>(scratch_bytes());
    if (needed > 0 &&
        (scratch.data == nullptr || scratch.bytes() < needed || scratch.space != MemorySpace::kCuda))
      refuse_view(scratch, DType::kU8, needed, where, "scratch");
  }

  Queue& queue_;
  kernels::AttentionArgs<S> shape_;
  std::int64_t width_;
};

class CudaAttention final : public Attention {
 public:
  explicit CudaAttention(Queue& queue) : queue_(queue) {}

  std::unique_ptr<AttentionKernel> prepare(const AttentionSpec& spec) override {
    const std::string device = std::string("device ") + kDeviceName + ": ";
    if (spec.batch < 0 || spec.time < 0 || spec.heads <= 0 || spec.head_width <= 0 || spec.window < 0) {
      fail_config(device +
                  "attention needs heads and head_width of at least 1 and window of at least 0, found " +
                  std::to_string(spec.heads) + ", " + std::to_string(spec.head_width) + " and " +
                  std::to_string(spec.window));
    }
    return with_storage(spec.dtype, "attention", [&](auto tag) -> std::unique_ptr<AttentionKernel> {
      return std::make_unique<CudaAttentionKernel<typename decltype(tag)::type>>(queue_, spec);
    });
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<Attention> make_attention(Queue& queue) {
  return std::make_unique<CudaAttention>(queue);
}

}  // namespace tenon::cuda
