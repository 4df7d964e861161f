// Optimizer updates over flat slices (family UpdateOps). Every element is independent.
#include "common.hpp"

namespace tenon::cpu {
namespace {

class CpuUpdateOps final : public UpdateOps {
 public:
  explicit CpuUpdateOps(const Kernels& kernels) : kernels_(kernels) {}

  void adamw(TensorView w, TensorView g, TensorView m, TensorView v, const AdamWStep& step) override {
    with_arithmetic(w.dtype, "adamw", [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t n = w.elements();
      T* weight = checked<T>(w, n, "adamw", "w");
      const T* gradient = checked<T>(g, n, "adamw", "g");
      T* first = checked<T>(m, n, "adamw", "m");
      T* second = checked<T>(v, n, "adamw", "v");
      const auto c = kernels::adamw_coefficients<T>(step.lr, step.beta1, step.beta2, step.eps, step.decay,
                                                    step.count, step.gradient_scale);
      parallel_for(n, kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
        rules<T>().adamw(c, gradient + begin, weight + begin, first + begin, second + begin, nullptr,
                         end - begin);
      });
    });
  }

  void sgd(TensorView w, TensorView g, TensorView momentum_buffer, const SgdStep& step) override {
    with_arithmetic(w.dtype, "sgd", [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t n = w.elements();
      T* weight = checked<T>(w, n, "sgd", "w");
      const T* gradient = checked<T>(g, n, "sgd", "g");
      T* buffer = step.momentum == 0 ? nullptr : checked<T>(momentum_buffer, n, "sgd", "momentum_buffer");
      const kernels::SgdCoefficients<T> c = {.grad_scale = static_cast<T>(step.gradient_scale),
                                             .lr = static_cast<T>(step.lr),
                                             .weight_decay = static_cast<T>(step.decay),
                                             .momentum = static_cast<T>(step.momentum),
                                             .one_minus_dampening = static_cast<T>(1.0 - step.dampening),
                                             .nesterov = step.nesterov,
                                             .first_step = step.first};
      parallel_for(n, kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
        rules<T>().sgd(c, gradient + begin, weight + begin, buffer == nullptr ? nullptr : buffer + begin,
                       nullptr, end - begin);
      });
    });
  }

 private:
  template <class T>
  const kernels::UpdateOps<T>& rules() const {
    if constexpr (std::is_same_v<T, float>) {
      return kernels_.table->update;
    } else {
      return kernels_.f64->update;
    }
  }

  Kernels kernels_;
};

}  // namespace

std::unique_ptr<UpdateOps> make_update_ops(const Kernels& kernels) {
  return std::make_unique<CpuUpdateOps>(kernels);
}

}  // namespace tenon::cpu
