// Causal attention (family Attention) on the bodies of kernels/cuda/attention*.hpp.
#include "device_common/attention.hpp"
#include "common.hpp"

#include <tenon/kernels/cuda/attention.hpp>
#include <tenon/kernels/cuda/attention_backward.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

template <class S>
class CudaAttentionKernel final : public AttentionKernel {
 public:
  CudaAttentionKernel(Queue& queue, const AttentionSpec& spec) : queue_(queue), shape_(spec) {}

  /// One number per query, for backward.
  std::size_t scratch_bytes() const override { return shape_.queries() * sizeof(A); }

  void forward(TensorView q, TensorView k, TensorView v, const AttentionMasks& masks, TensorView y,
               TensorView lse, TensorView scratch) override {
    constexpr const char* kWhere = "attention";
    const bodies::AttentionForward<S> body{shape_.forward(q, k, v, masks, y, lse, kWhere)};
    device_arguments::check_scratch_view(scratch, scratch_bytes(), kWhere);
    if (shape_.queries() > 0) queue_.launch(kWhere, body.mesh(), body);
  }

  void backward(TensorView q, TensorView k, TensorView v, const AttentionMasks& masks, TensorView y,
                TensorView lse, TensorView dy, TensorView dq, TensorView dk, TensorView dv,
                TensorView scratch) override {
    constexpr const char* kWhere = "attention backward";
    auto args = shape_.forward(q, k, v, masks, y, lse, kWhere);
    shape_.backward(args, dy, dq, dk, dv, kWhere);
    device_arguments::check_scratch_view(scratch, scratch_bytes(), kWhere);
    if (shape_.queries() == 0) return;
    A* const sums = scratch.as<A>();
    const bodies::AttentionRowSums<S> row_sums{args, sums};
    const bodies::AttentionQueryGradient<S> query{args, sums};
    const bodies::AttentionKeyGradients<S> keys{args, sums};
    queue_.launch("attention backward: sums", row_sums.mesh(), row_sums);
    queue_.launch("attention backward: dq", query.mesh(), query);
    queue_.launch("attention backward: dk, dv", keys.mesh(), keys);
  }

 private:
  using A = Arith<S>;

  Queue& queue_;
  const device_arguments::AttentionShape<S> shape_;
};

class CudaAttention final : public Attention {
 public:
  explicit CudaAttention(Queue& queue) : queue_(queue) {}

  std::unique_ptr<AttentionKernel> prepare(const AttentionSpec& spec) override {
    device_arguments::check_attention(spec);
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
