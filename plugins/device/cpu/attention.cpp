// Causal attention (family Attention) on the kernels' blockwise form. Workspaces belong to parts of the work,
// as many as the team had threads when the plan was made; how the work is cut does not change a bit.
#include "families.hpp"
#include "memory.hpp"

#include <tenon/kernels/attention.hpp>

#include <string>

namespace tenon::cpu {
namespace {

using kernels::Arith;

template <class S>
class CpuAttentionKernel final : public AttentionKernel {
 public:
  CpuAttentionKernel(const Kernels& kernels, const AttentionSpec& spec)
      : ops_(kernels.ops<S>().attention), width_(spec.heads * spec.head_width), parts_(parallel_threads()) {
    shape_.batch = spec.batch;
    shape_.time = spec.time;
    shape_.heads = spec.heads;
    shape_.d_head = spec.head_width;
    shape_.window = spec.window;
    shape_.scale = static_cast<Arith<S>>(spec.logit_scale);
    shape_.qkv_row_stride = shape_.out_row_stride = shape_.dqkv_row_stride = width_;
    constexpr std::size_t kItems = kCacheLine / sizeof(Arith<S>);
    stride_ = (static_cast<std::size_t>(ops_.workspace(shape_)) + kItems - 1) / kItems * kItems;
  }

  std::size_t scratch_bytes() const override {
    return stride_ * sizeof(Arith<S>) * static_cast<std::size_t>(parts_);
  }

  void forward(TensorView q, TensorView k, TensorView v, TensorView key_mask, TensorView y, TensorView lse,
               TensorView scratch) override {
    auto args = inputs(q, k, v, key_mask, y, lse, "attention");
    run(kernels::attention_forward_items(args), scratch,
        [&](std::int64_t begin, std::int64_t end, Arith<S>* workspace) {
          ops_.forward(args, begin, end, workspace);
        });
  }

  void backward(TensorView q, TensorView k, TensorView v, TensorView key_mask, TensorView y, TensorView lse,
                TensorView dy, TensorView dq, TensorView dk, TensorView dv, TensorView scratch) override {
    constexpr const char* kWhere = "attention backward";
    auto args = inputs(q, k, v, key_mask, y, lse, kWhere);
    args.dout = checked<S>(dy, elements(), kWhere, "dy");
    args.dq = checked<S>(dq, elements(), kWhere, "dq");
    args.dk = checked<S>(dk, elements(), kWhere, "dk");
    args.dv = checked<S>(dv, elements(), kWhere, "dv");
    run(kernels::attention_backward_items(args), scratch,
        [&](std::int64_t begin, std::int64_t end, Arith<S>* workspace) {
          ops_.backward(args, begin, end, workspace);
        });
  }

 private:
  std::int64_t elements() const { return shape_.batch * shape_.time * width_; }

  kernels::AttentionArgs<S> inputs(const TensorView& q, const TensorView& k, const TensorView& v,
                                   const TensorView& key_mask, const TensorView& y, const TensorView& lse,
                                   const char* where) const {
    auto args = shape_;
    args.q = checked<S>(q, elements(), where, "q");
    args.k = checked<S>(k, elements(), where, "k");
    args.v = checked<S>(v, elements(), where, "v");
    args.key_mask = checked_or_null<std::uint8_t>(key_mask, args.batch * args.time, where, "key_mask");
    args.out = checked<S>(y, elements(), where, "y");
    args.lse = checked<Arith<S>>(lse, args.batch * args.heads * args.time, where, "lse");
    return args;
  }

  template <class Body>
  void run(std::int64_t items, const TensorView& scratch, Body body) const {
    if (items == 0) return;
    if (scratch.bytes() < static_cast<std::int64_t>(scratch_bytes()) ||
        (scratch.data == nullptr && stride_ > 0))
      refuse_view(scratch, DType::kU8, static_cast<std::int64_t>(scratch_bytes()), "attention", "scratch");
    auto* workspace = static_cast<Arith<S>*>(scratch.data);
    const std::int64_t block = (items + parts_ - 1) / parts_;
    parallel_for(items, block, [&](std::int64_t begin, std::int64_t end) {
      body(begin, end, workspace + static_cast<std::size_t>(begin / block) * stride_);
    });
  }

  const kernels::AttentionOps<S>& ops_;
  kernels::AttentionArgs<S> shape_;
  std::int64_t width_;
  std::int64_t parts_;
  std::size_t stride_ = 0;
};

class CpuAttention final : public Attention {
 public:
  explicit CpuAttention(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<AttentionKernel> prepare(const AttentionSpec& spec) override {
    if (spec.batch < 0 || spec.time < 0 || spec.heads <= 0 || spec.head_width <= 0 || spec.window < 0) {
      fail_config(
          "device cpu: attention needs heads and head_width of at least 1 and window of at least 0, found " +
          std::to_string(spec.heads) + ", " + std::to_string(spec.head_width) + " and " +
          std::to_string(spec.window));
    }
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
