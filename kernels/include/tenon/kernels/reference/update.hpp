// Reference optimizer updates: the formulas of update.hpp, one parameter at a time.
#pragma once

#include <cmath>
#include <tenon/kernels/reference/scalar.hpp>
#include <tenon/kernels/update.hpp>

namespace tenon::kernels::reference {

template <class T>
void adamw(const AdamwCoefficients<T>& c, const T* grad, T* p, T* m, T* v, Bf16* copy, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = c.grad_scale * grad[i];
    p[i] *= c.decay;
    m[i] += c.one_minus_beta1 * (g - m[i]);
    v[i] = c.beta2 * v[i] + c.one_minus_beta2 * g * g;
    p[i] -= c.step_size * m[i] / (std::sqrt(v[i]) / c.sqrt_bias_correction2 + c.eps);
    if (copy != nullptr) copy[i] = to_bf16(static_cast<float>(p[i]));
  }
}

template <class T>
void sgd(const SgdCoefficients<T>& c, const T* grad, T* p, T* buffer, Bf16* copy, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    T g = c.grad_scale * grad[i] + c.weight_decay * p[i];
    if (buffer != nullptr) {
      buffer[i] = c.first_step ? g : c.momentum * buffer[i] + c.one_minus_dampening * g;
      g = c.nesterov ? g + c.momentum * buffer[i] : buffer[i];
    }
    p[i] -= c.lr * g;
    if (copy != nullptr) copy[i] = to_bf16(static_cast<float>(p[i]));
  }
}

}  // namespace tenon::kernels::reference
