// Optimizer updates over flat slices (family UpdateOps). Coefficients are made on the host, in double, by the
// function that the other devices use.
#include "common.hpp"

#include <tenon/kernels/cuda/update.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

class CudaUpdateOps final : public UpdateOps {
 public:
  explicit CudaUpdateOps(Queue& queue) : queue_(queue) {}

  void adamw(TensorView w, TensorView g, TensorView m, TensorView v, const AdamWStep& step) override {
    with_arithmetic(w.dtype, "adamw", [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t n = w.elements();
      const auto c = kernels::adamw_coefficients<T>(step.lr, step.beta1, step.beta2, step.eps, step.decay,
                                                    step.count, step.gradient_scale);
      const bodies::AdamwUpdate<T> body{c,
                                        checked<T>(g, n, "adamw", "g"),
                                        checked<T>(w, n, "adamw", "w"),
                                        checked<T>(m, n, "adamw", "m"),
                                        checked<T>(v, n, "adamw", "v"),
                                        n};
      if (n > 0) queue_.launch("adamw", grid_for(n), body);
    });
  }

  void sgd(TensorView w, TensorView g, TensorView momentum_buffer, const SgdStep& step) override {
    with_arithmetic(w.dtype, "sgd", [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t n = w.elements();
      const kernels::SgdCoefficients<T> c = {.grad_scale = static_cast<T>(step.gradient_scale),
                                             .lr = static_cast<T>(step.lr),
                                             .weight_decay = static_cast<T>(step.decay),
                                             .momentum = static_cast<T>(step.momentum),
                                             .one_minus_dampening = static_cast<T>(1.0 - step.dampening),
                                             .nesterov = step.nesterov,
                                             .first_step = step.first};
      const bodies::SgdUpdate<T> body{
          c, checked<T>(g, n, "sgd", "g"), checked<T>(w, n, "sgd", "w"),
          step.momentum == 0 ? nullptr : checked<T>(momentum_buffer, n, "sgd", "momentum_buffer"), n};
      if (n > 0) queue_.launch("sgd", grid_for(n), body);
    });
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<UpdateOps> make_update_ops(Queue& queue) {
  return std::make_unique<CudaUpdateOps>(queue);
}

}  // namespace tenon::cuda
