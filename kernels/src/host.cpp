// Code that is the same in every kernel set: coefficients of updates, the sum of block sums, the check of
// indices.
#include <cmath>
#include <tenon/kernels/reduce.hpp>
#include <tenon/kernels/update.hpp>

namespace tenon::kernels {

double pairwise_sum(const double* values, std::int64_t n) {
  if (n <= 2) return n == 0 ? 0.0 : n == 1 ? values[0] : values[0] + values[1];
  const std::int64_t half = (n + 1) / 2;
  return pairwise_sum(values, half) + pairwise_sum(values + half, n - half);
}

std::int64_t first_bad_index(const std::int32_t* indices, std::int64_t n, std::int32_t lowest,
                             std::int64_t bound) {
  for (std::int64_t i = 0; i < n; ++i)
    if (indices[i] < lowest || indices[i] >= bound) return i;
  return -1;
}

template <class T>
AdamwCoefficients<T> adamw_coefficients(double lr, double beta1, double beta2, double eps,
                                        double weight_decay, std::int64_t step, double grad_scale) {
  const double t = static_cast<double>(step);
  const double bias_correction1 = 1.0 - std::pow(beta1, t);
  const double bias_correction2 = 1.0 - std::pow(beta2, t);
  return {.grad_scale = static_cast<T>(grad_scale),
          .decay = static_cast<T>(1.0 - lr * weight_decay),
          .one_minus_beta1 = static_cast<T>(1.0 - beta1),
          .beta2 = static_cast<T>(beta2),
          .one_minus_beta2 = static_cast<T>(1.0 - beta2),
          .step_size = static_cast<T>(lr / bias_correction1),
          .sqrt_bias_correction2 = static_cast<T>(std::sqrt(bias_correction2)),
          .eps = static_cast<T>(eps)};
}

template AdamwCoefficients<float> adamw_coefficients(double, double, double, double, double, std::int64_t,
                                                     double);
template AdamwCoefficients<double> adamw_coefficients(double, double, double, double, double, std::int64_t,
                                                      double);

}  // namespace tenon::kernels
