// Optimizer updates, fused into one pass: AdamW (Loshchilov and Hutter, "Decoupled weight decay
// regularization", ICLR 2019) and SGD with momentum, in the operation order of PyTorch's torch.optim. Every
// element is independent and every operation is rounded once: all kernel sets give the same bits.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// Coefficients of one AdamW step, made in double by adamw_coefficients:
///   g = grad_scale grad;  p = decay p;  m = m + one_minus_beta1 (g - m);  v = beta2 v + (one_minus_beta2 g)
///   g p = p - (step_size m) / (sqrt(v) / sqrt_bias_correction2 + eps)
template <class T>
struct AdamwCoefficients {
  T grad_scale, decay, one_minus_beta1, beta2, one_minus_beta2, step_size, sqrt_bias_correction2, eps;
};

/// `step` counts from 1; grad_scale carries unscaling and clipping.
template <class T>
AdamwCoefficients<T> adamw_coefficients(double lr, double beta1, double beta2, double eps,
                                        double weight_decay, std::int64_t step, double grad_scale);

/// Coefficients of one SGD step:
///   g = grad_scale grad + weight_decay p;  buffer = first_step ? g : momentum buffer + one_minus_dampening g
///   p = p - lr (nesterov ? g + momentum buffer : buffer)          without momentum: p = p - lr g, no buffer
template <class T>
struct SgdCoefficients {
  T grad_scale, lr, weight_decay, momentum, one_minus_dampening;
  bool nesterov, first_step;
};

template <class T>
struct UpdateOps {
  /// copy: bfloat16 image of the new p, or null.
  void (*adamw)(const AdamwCoefficients<T>& c, const T* grad, T* p, T* m, T* v, Bf16* copy, std::int64_t n);
  /// buffer: momentum state; null exactly when c.momentum is 0.
  void (*sgd)(const SgdCoefficients<T>& c, const T* grad, T* p, T* buffer, Bf16* copy, std::int64_t n);
};

}  // namespace tenon::kernels
