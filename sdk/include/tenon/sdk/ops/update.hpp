// Operator family of a device for the updates of AdamW and SGD. Optional: a device offers it to the
// plugins that ask for it. Conventions are those of
// <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

TENON_ABI_BEGIN

/// Hyper-parameters of one AdamW update (Loshchilov and Hutter, decoupled decay).
struct AdamWStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  std::int64_t count = 1;     ///< this update is number `count`, from 1
  double gradient_scale = 1;  ///< multiplies the gradient as it is read (unscaling and clipping)
};

/// Hyper-parameters of one SGD update with momentum, as PyTorch defines it.
struct SgdStep {
  double lr = 0, momentum = 0, dampening = 0, decay = 0;
  bool nesterov = false;
  bool first = false;  ///< the momentum buffer is set, not blended
  double gradient_scale = 1;
};

/// Update rules over flat slices of arenas. w, g, m, v: equal length, f32 or f64.
class UpdateOps {
 public:
  static constexpr const char* kId = "tenon.device.update/1";
  virtual ~UpdateOps();
  virtual void adamw(TensorView w, TensorView g, TensorView m, TensorView v, const AdamWStep& step) = 0;
  /// momentum_buffer is empty when momentum is 0.
  virtual void sgd(TensorView w, TensorView g, TensorView momentum_buffer, const SgdStep& step) = 0;
};

TENON_ABI_END
