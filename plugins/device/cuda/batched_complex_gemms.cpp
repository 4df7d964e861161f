// Complex products per mode (family BatchedComplexGemms).
#include "device_common/batched_complex_gemms.hpp"
#include "common.hpp"

#include <tenon/kernels/cuda/batched_complex_gemm.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

/// With fewer threads than this, each thread computes a single sum.
constexpr std::int64_t kBusyThreads = std::int64_t{132} * 1024;

template <class T>
class CudaBatchedComplexGemm final : public BatchedComplexGemm {
 public:
  CudaBatchedComplexGemm(Queue& queue, const BatchedComplexGemmSpec& spec) : queue_(queue), shape_(spec) {}

  std::size_t scratch_bytes() const override { return 0; }

  void forward(TensorView x, TensorView w, TensorView y, TensorView) override {
    const auto args = shape_.forward(x, w, y);
    start(bodies::mode_forward<T, bodies::kModeSide>(args), bodies::mode_forward<T, 1>(args));
  }
  void backward_input(TensorView w, TensorView dy, TensorView dx, TensorView) override {
    const auto args = shape_.backward_input(w, dy, dx);
    start(bodies::mode_backward_input<T, bodies::kModeSide>(args), bodies::mode_backward_input<T, 1>(args));
  }
  void backward_weight(TensorView x, TensorView dy, TensorView dw, bool accumulate, TensorView) override {
    const auto args = shape_.backward_weight(x, dy, dw, accumulate);
    start(bodies::mode_backward_weight<T, bodies::kModeSide>(args), bodies::mode_backward_weight<T, 1>(args));
  }

 private:
  /// The same sums by few threads or by many: the sums of a mode are independent chains.
  template <class Few, class Many>
  void start(const Few& few, const Many& many) {
    if (many.items() == 0) return;
    if (few.items() >= kBusyThreads) {
      queue_.launch(device_arguments::kBatchedComplexGemm, grid_for(few.items()), few);
    } else {
      queue_.launch(device_arguments::kBatchedComplexGemm, grid_for(many.items()), many);
    }
  }

  Queue& queue_;
  const device_arguments::BatchedComplexGemmShape<T> shape_;
};

class CudaBatchedComplexGemms final : public BatchedComplexGemms {
 public:
  explicit CudaBatchedComplexGemms(Queue& queue) : queue_(queue) {}

  std::unique_ptr<BatchedComplexGemm> prepare(const BatchedComplexGemmSpec& spec) override {
    return device_arguments::with_batched_complex_gemm(
        spec, [&](auto tag) -> std::unique_ptr<BatchedComplexGemm> {
          return std::make_unique<CudaBatchedComplexGemm<typename decltype(tag)::type>>(queue_, spec);
        });
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<BatchedComplexGemms> make_batched_complex_gemms(Queue& queue) {
  return std::make_unique<CudaBatchedComplexGemms>(queue);
}

}  // namespace tenon::cuda
