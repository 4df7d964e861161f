// Causal attention (family Attention) on the kernels' blockwise form. Each share of the work has a workspace,
// as many as the team had threads when the plan was made; the split of the work does not change a bit.
#include "device_common/attention.hpp"
#include "common.hpp"

namespace tenon::cpu {
namespace {

using kernels::Arith;

template <class S>
class CpuAttentionKernel final : public AttentionKernel {
 public:
  CpuAttentionKernel(const Kernels& kernels, const AttentionSpec& spec)
      : ops_(kernels.ops<S>().attention), shape_(spec), parts_(parallel_threads()) {
    constexpr std::size_t kItems = kCacheLine / sizeof(Arith<S>);
    stride_ = (static_cast<std::size_t>(ops_.workspace(shape_.args())) + kItems - 1) / kItems * kItems;
  }

  std::size_t scratch_bytes() const override { return stride_ * sizeof(Arith<S>) * parts_; }

  void forward(TensorView q, TensorView k, TensorView v, const AttentionMasks& masks, TensorView y,
               TensorView lse, TensorView scratch) override {
    const auto args = shape_.forward(q, k, v, masks, y, lse, "attention");
    run(kernels::attention_forward_items(args), scratch,
        [&](std::int64_t begin, std::int64_t end, Arith<S>* workspace) {
          ops_.forward(args, begin, end, workspace);
        });
  }

  void backward(TensorView q, TensorView k, TensorView v, const AttentionMasks& masks, TensorView y,
                TensorView lse, TensorView dy, TensorView dq, TensorView dk, TensorView dv,
                TensorView scratch) override {
    constexpr const char* kWhere = "attention backward";
    auto args = shape_.forward(q, k, v, masks, y, lse, kWhere);
    shape_.backward(args, dy, dq, dk, dv, kWhere);
    run(kernels::attention_backward_items(args), scratch,
        [&](std::int64_t begin, std::int64_t end, Arith<S>* workspace) {
          ops_.backward(args, begin, end, workspace);
        });
  }

 private:
  template <class Body>
  void run(std::int64_t items, const TensorView& scratch, Body body) const {
    if (items == 0) return;
    device_arguments::check_scratch_view(scratch, scratch_bytes(), "attention");
    auto* workspace = static_cast<Arith<S>*>(scratch.data);
    const std::int64_t block = (items + parts_ - 1) / parts_;
    parallel_for(items, block, [&](std::int64_t begin, std::int64_t end) {
      body(begin, end, workspace + static_cast<std::size_t>(begin / block) * stride_);
    });
  }

  const kernels::AttentionOps<S>& ops_;
  const device_arguments::AttentionShape<S> shape_;
  std::int64_t parts_;
  std::size_t stride_ = 0;
};

class CpuAttention final : public Attention {
 public:
  explicit CpuAttention(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<AttentionKernel> prepare(const AttentionSpec& spec) override {
    device_arguments::check_attention(spec);
    return with_storage(spec.dtype, "attention", [&](auto tag) -> std::unique_ptr<AttentionKernel> {
      return std::make_unique<CpuAttentionKernel<typename decltype(tag)::type>>(kernels_, spec);
    });
  }

 private:
  Kernels kernels_;
};

}  // namespace

std::unique_ptr<Attention> make_attention(const Kernels& kernels) {
  return std::make_unique<CpuAttention>(kernels);
}

}  // namespace tenon::cpu
