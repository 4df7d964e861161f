// Complex products per mode (family BatchedComplexGemms). Groups of modes are shared among threads, each with
// a workspace of its own; the split does not change a bit.
#include "device_common/batched_complex_gemms.hpp"
#include "common.hpp"

namespace tenon::cpu {
namespace {

/// Reals that fill whole cache lines.
constexpr std::int64_t kAlignedReals = 16;

template <class T>
class CpuBatchedComplexGemm final : public BatchedComplexGemm {
 public:
  CpuBatchedComplexGemm(const kernels::BatchedComplexGemmOps<T>& ops, const BatchedComplexGemmSpec& spec)
      : ops_(ops),
        shape_(spec),
        groups_((spec.modes + kernels::kModeGroup - 1) / kernels::kModeGroup),
        parts_(parallel_threads()) {
    workspace_ = (ops.workspace(shape_.args()) + kAlignedReals - 1) / kAlignedReals * kAlignedReals;
  }

  std::size_t scratch_bytes() const override { return (workspace_ * parts_) * sizeof(T); }

  void forward(TensorView x, TensorView w, TensorView y, TensorView scratch) override {
    run(shape_.forward(x, w, y), scratch, ops_.forward);
  }
  void backward_input(TensorView w, TensorView dy, TensorView dx, TensorView scratch) override {
    run(shape_.backward_input(w, dy, dx), scratch, ops_.backward_input);
  }
  void backward_weight(TensorView x, TensorView dy, TensorView dw, bool accumulate,
                       TensorView scratch) override {
    run(shape_.backward_weight(x, dy, dw, accumulate), scratch, ops_.backward_weight);
  }

 private:
  template <class Kernel>
  void run(const kernels::BatchedComplexGemmArgs<T>& args, const TensorView& scratch, Kernel kernel) const {
    if (groups_ == 0) return;
    if (workspace_ > 0 &&
        (scratch.data == nullptr || scratch.bytes() < static_cast<std::int64_t>(scratch_bytes())))
      refuse_view(scratch, DType::kU8, static_cast<std::int64_t>(scratch_bytes()),
                  device_arguments::kBatchedComplexGemm, "scratch");
    const std::int64_t block = (groups_ + parts_ - 1) / parts_;
    parallel_for(groups_, block, [&](std::int64_t begin, std::int64_t end) {
      auto mine = args;
      mine.workspace = static_cast<T*>(scratch.data) + begin / block * workspace_;
      kernel(mine, begin, end);
    });
  }

  const kernels::BatchedComplexGemmOps<T>& ops_;
  const device_arguments::BatchedComplexGemmShape<T> shape_;
  std::int64_t groups_, parts_, workspace_ = 0;
};

class CpuBatchedComplexGemms final : public BatchedComplexGemms {
 public:
  explicit CpuBatchedComplexGemms(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<BatchedComplexGemm> prepare(const BatchedComplexGemmSpec& spec) override {
    return device_arguments::with_batched_complex_gemm(
        spec, [&](auto tag) -> std::unique_ptr<BatchedComplexGemm> {
          using T = typename decltype(tag)::type;
          if constexpr (std::is_same_v<T, float>) {
            return std::make_unique<CpuBatchedComplexGemm<T>>(kernels_.table->modes, spec);
          } else {
            return std::make_unique<CpuBatchedComplexGemm<T>>(kernels_.f64->modes, spec);
          }
        });
  }

 private:
  Kernels kernels_;
};

}  // namespace

std::unique_ptr<BatchedComplexGemms> make_batched_complex_gemms(const Kernels& kernels) {
  return std::make_unique<CpuBatchedComplexGemms>(kernels);
}

}  // namespace tenon::cpu
