// Causal attention (family Attention), also to kept keys, on the bodies that attention_start.hpp chooses.
#include "device_common/attention.hpp"
#include "common.hpp"

#include <tenon/kernels/cuda/attention_start.hpp>

#include <vector>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

auto launch_on(Queue& queue) {
  return [&queue](const char* what, const auto& body) { queue.launch(what, body.mesh(), body); };
}

template <class S>
class CudaAttentionKernel final : public AttentionKernel {
 public:
  CudaAttentionKernel(Queue& queue, const AttentionSpec& spec) : queue_(queue), shape_(spec) {}

  /// One number per query, for backward.
  std::size_t scratch_bytes() const override { return shape_.queries() * sizeof(A); }

  void forward(TensorView q, TensorView k, TensorView v, const AttentionMasks& masks, TensorView y,
               TensorView lse, TensorView scratch) override {
    constexpr const char* kWhere = "attention";
    const auto args = shape_.forward(q, k, v, masks, y, lse, kWhere);
    device_arguments::check_scratch_view(scratch, scratch_bytes(), kWhere);
    if (shape_.queries() > 0) bodies::start_attention<S>(args, launch_on(queue_));
  }

  void backward(TensorView q, TensorView k, TensorView v, const AttentionMasks& masks, TensorView y,
                TensorView lse, TensorView dy, TensorView dq, TensorView dk, TensorView dv,
                TensorView scratch) override {
    constexpr const char* kWhere = "attention backward";
    auto args = shape_.forward(q, k, v, masks, y, lse, kWhere);
    shape_.backward(args, dy, dq, dk, dv, kWhere);
    device_arguments::check_scratch_view(scratch, scratch_bytes(), kWhere);
    if (shape_.queries() > 0) bodies::start_attention_backward<S>(args, scratch.as<A>(), launch_on(queue_));
  }

 private:
  using A = Arith<S>;

  Queue& queue_;
  const device_arguments::AttentionShape<S> shape_;
};

template <class S>
class CudaCachedAttentionKernel final : public CachedAttentionKernel {
 public:
  CudaCachedAttentionKernel(Queue& queue, const CachedAttentionSpec& spec)
      : queue_(queue), shape_(spec), rows_(queue), host_rows_(static_cast<std::size_t>(spec.batch)) {
    if (!host_rows_.empty()) rows_.set(host_rows_);
  }

  std::int64_t sequence_bytes() const override { return shape_.sequence_bytes(); }
  std::size_t scratch_bytes() const override { return 0; }

  void forward(TensorView q, TensorView k, TensorView v, TensorView documents, const CachedRows& rows,
               TensorView state, TensorView y, TensorView) override {
    constexpr const char* kWhere = "cached attention";
    shape_.take(q, k, v, documents, rows, state, y, kWhere);
    if (shape_.batch() * shape_.time() == 0) return;
    for (std::size_t row = 0; row < host_rows_.size(); ++row)
      host_rows_[row] = {rows.first[row], rows.count[row], rows.kept[row]};
    rows_.update(host_rows_);
    const bodies::CachedPass<S> pass{shape_.args(),
                                     shape_.batch(),
                                     shape_.time(),
                                     rows_.template at<bodies::CachedRow>(),
                                     state.as<std::uint8_t>(),
                                     sequence_bytes()};
    bodies::start_cached_attention<S>(pass, launch_on(queue_));
  }

 private:
  Queue& queue_;
  device_arguments::CachedAttentionShape<S> shape_;
  DeviceNumbers rows_;
  std::vector<bodies::CachedRow> host_rows_;
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

  std::unique_ptr<CachedAttentionKernel> prepare_cached(const CachedAttentionSpec& spec) override {
    device_arguments::check_cached_attention(spec);
    return with_storage(
        spec.dtype, "cached attention", [&](auto tag) -> std::unique_ptr<CachedAttentionKernel> {
          return std::make_unique<CudaCachedAttentionKernel<typename decltype(tag)::type>>(queue_, spec);
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
