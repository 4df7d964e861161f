// Causal attention (family Attention) on the kernels' blockwise form, over whole sequences and to kept keys.
// Each share of the work has a workspace, as many as the team had threads when the plan was made; the split
// of the work does not change a bit.
#include "device_common/attention.hpp"
#include "common.hpp"

#include <cstring>

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

/// Kept keys and values, and the attention of each row's places to them. Shares of the work are about equal
/// in pairs of queries and keys, whatever the lengths of the rows.
template <class S>
class CpuCachedAttentionKernel final : public CachedAttentionKernel {
 public:
  CpuCachedAttentionKernel(const Kernels& kernels, const CachedAttentionSpec& spec)
      : ops_(kernels.ops<S>().cached_attention), shape_(spec), parts_(parallel_threads()) {
    constexpr std::size_t kItems = kCacheLine / sizeof(Arith<S>);
    stride_ = (static_cast<std::size_t>(ops_.workspace(shape_.largest())) + kItems - 1) / kItems * kItems;
  }

  std::int64_t sequence_bytes() const override { return shape_.sequence_bytes(); }
  std::size_t scratch_bytes() const override { return stride_ * sizeof(Arith<S>) * parts_; }

  void forward(TensorView q, TensorView k, TensorView v, TensorView documents, const CachedRows& rows,
               TensorView state, TensorView y, TensorView scratch) override {
    constexpr const char* kWhere = "cached attention";
    shape_.take(q, k, v, documents, rows, state, y, kWhere);
    device_arguments::check_scratch_view(scratch, scratch_bytes(), kWhere);
    keep(y.as<S>());
    std::int64_t work = 0;
    for (std::int64_t row = 0; row < shape_.batch(); ++row) work += work_of(row).all();
    if (work == 0) return;
    auto* workspace = scratch.as<Arith<S>>();
    parallel_for(parts_, 1, [&](std::int64_t part, std::int64_t) {
      attend(work * part / parts_, work * (part + 1) / parts_,
             workspace + static_cast<std::size_t>(part) * stride_);
    });
  }

 private:
  /// A row's units of work, and pairs of queries and keys of each.
  struct Work {
    std::int64_t items, each;
    std::int64_t all() const { return items * each; }
  };
  Work work_of(std::int64_t row) const {
    const std::int64_t count = shape_.count(row);
    const auto args = shape_.args(row);
    return {kernels::cached_attention_items(args),
            std::min(count, kernels::kAttentionQueryBlock) * (shape_.first(row) + count)};
  }

  /// Keeps the places that count, and clears the output of the others.
  void keep(S* y) const {
    const std::int64_t time = shape_.time(), width = shape_.width();
    parallel_for(shape_.batch() * time, row_block(width), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t place = begin; place < end;) {
        const std::int64_t row = place / time, first = place % time;
        const std::int64_t last = std::min(time, first + end - place), count = shape_.count(row);
        if (first < count) kernels::keep_places(shape_.args(row), first, std::min(last, count));
        const std::int64_t padding = std::max(first, count);
        if (padding < last)
          std::memset(y + (row * time + padding) * width, 0, (last - padding) * width * sizeof(S));
        place += last - first;
      }
    });
  }

  /// Units of work that begin within [begin, end) of all work.
  void attend(std::int64_t begin, std::int64_t end, Arith<S>* workspace) const {
    std::int64_t before = 0;
    for (std::int64_t row = 0; row < shape_.batch() && before < end; ++row) {
      const Work work = work_of(row);
      if (work.all() > 0) {
        const auto item_from = [&](std::int64_t at) {
          return at <= before ? 0 : std::min(work.items, (at - before + work.each - 1) / work.each);
        };
        const std::int64_t from = item_from(begin), to = item_from(end);
        if (from < to) ops_.forward(shape_.args(row), from, to, workspace);
      }
      before += work.all();
    }
  }

  const kernels::CachedAttentionOps<S>& ops_;
  device_arguments::CachedAttentionShape<S> shape_;
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

  std::unique_ptr<CachedAttentionKernel> prepare_cached(const CachedAttentionSpec& spec) override {
    device_arguments::check_cached_attention(spec);
    return with_storage(
        spec.dtype, "cached attention", [&](auto tag) -> std::unique_ptr<CachedAttentionKernel> {
          return std::make_unique<CpuCachedAttentionKernel<typename decltype(tag)::type>>(kernels_, spec);
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
