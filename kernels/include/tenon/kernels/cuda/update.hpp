// Kernel bodies of optimizer updates: the formulas of update.hpp, every array read and written once. One
// thread computes a parameter, in the order of operations of reference/update.hpp, so the bits are the same.
#pragma once

#include <cmath>
#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/update.hpp>

namespace tenon::kernels::cuda {

/// Arrays of n elements; none overlaps another.
template <class T>
struct AdamwUpdate {
  AdamwCoefficients<T> c;
  const T* grad;
  T *p, *m, *v;
  std::int64_t n;

  TENON_BOTH void operator()(const Block& block) const {
    const AdamwUpdate& a = *this;
    for_each_element(block, n, [&](std::int64_t i) {
      const T g = a.c.grad_scale * a.grad[i];
      const T decayed = a.p[i] * a.c.decay;
      const T first = a.m[i] + a.c.one_minus_beta1 * (g - a.m[i]);
      const T second = a.c.beta2 * a.v[i] + a.c.one_minus_beta2 * g * g;
      a.m[i] = first;
      a.v[i] = second;
      a.p[i] = decayed - a.c.step_size * first / (std::sqrt(second) / a.c.sqrt_bias_correction2 + a.c.eps);
    });
  }
};

/// buffer: null exactly when c.momentum is 0.
template <class T>
struct SgdUpdate {
  SgdCoefficients<T> c;
  const T* grad;
  T *p, *buffer;
  std::int64_t n;

  TENON_BOTH void operator()(const Block& block) const {
    const SgdUpdate& a = *this;
    for_each_element(block, n, [&](std::int64_t i) {
      const T old = a.p[i];
      T g = a.c.grad_scale * a.grad[i] + a.c.weight_decay * old;
      if (a.buffer != nullptr) {
        const T blended = a.c.first_step ? g : a.c.momentum * a.buffer[i] + a.c.one_minus_dampening * g;
        a.buffer[i] = blended;
        g = a.c.nesterov ? g + a.c.momentum * blended : blended;
      }
      a.p[i] = old - a.c.lr * g;
    });
  }
};

}  // namespace tenon::kernels::cuda
