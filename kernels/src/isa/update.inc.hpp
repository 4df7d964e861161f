// Optimizer updates (formulas and order of operations: update.hpp).
#pragma once

#include <tenon/kernels/update.hpp>

#include "isa/simd.inc.hpp"

namespace tenon::kernels {
namespace {

void adamw(const AdamwCoefficients<float>& c, const float* grad, float* p, float* m, float* v, Bf16* copy,
           std::int64_t n) {
  for_lanes(0, n, [&](std::int64_t i, std::int64_t count) TENON_BODY {
    const F g = splat(c.grad_scale) * load_group(grad + i, count);
    const F decayed = splat(c.decay) * load_group(p + i, count);
    const F m0 = load_group(m + i, count);
    const F m1 = m0 + splat(c.one_minus_beta1) * (g - m0);
    const F v1 = splat(c.beta2) * load_group(v + i, count) + (splat(c.one_minus_beta2) * g) * g;
    const F denominator = sqrt(v1) / splat(c.sqrt_bias_correction2) + splat(c.eps);
    const F next = decayed - (splat(c.step_size) * m1) / denominator;
    store_group(m + i, m1, count);
    store_group(v + i, v1, count);
    store_group(p + i, next, count);
    if (copy != nullptr) store_group(copy + i, next, count);
  });
}

void sgd(const SgdCoefficients<float>& c, const float* grad, float* p, float* buffer, Bf16* copy,
         std::int64_t n) {
  for_lanes(0, n, [&](std::int64_t i, std::int64_t count) TENON_BODY {
    const F w = load_group(p + i, count);
    F g = splat(c.grad_scale) * load_group(grad + i, count) + splat(c.weight_decay) * w;
    if (buffer != nullptr) {
      const F b = c.first_step
                      ? g
                      : splat(c.momentum) * load_group(buffer + i, count) + splat(c.one_minus_dampening) * g;
      store_group(buffer + i, b, count);
      g = c.nesterov ? g + splat(c.momentum) * b : b;
    }
    const F next = w - splat(c.lr) * g;
    store_group(p + i, next, count);
    if (copy != nullptr) store_group(copy + i, next, count);
  });
}

}  // namespace
}  // namespace tenon::kernels
