// Adagrad updates, header only: one accumulator per element (Duchi, Hazan and Singer, JMLR 2011, in the
// operation order of torch.optim.Adagrad), and one per row, for tables whose state would otherwise be as
// large as the tables (Naumov et al., arXiv 1906.00091). Every operation is rounded once. Where errno of a
// root does not matter (-fno-math-errno) the loops are vectorised.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tenon::kernels {

template <class T>
struct AdagradCoefficients {
  T grad_scale = 1;  ///< unscaling and clipping
  T lr = 0, decay = 0, eps = 0;
  T initial = 0;  ///< accumulator before the first gradient
};

/// Computed in double, used in T.
template <class T>
AdagradCoefficients<T> rounded(const AdagradCoefficients<double>& c) {
  return {static_cast<T>(c.grad_scale), static_cast<T>(c.lr), static_cast<T>(c.decay), static_cast<T>(c.eps),
          static_cast<T>(c.initial)};
}

/// An accumulator that is still zero was never used: its first update, in any order, initialises it.
template <class T>
T accumulated(T sum, T initial, T square) {
  return (sum == 0 ? initial : sum) + square;
}

///   g = grad_scale grad + decay p;   sum = sum + g^2;   p = p - lr (g / (sqrt(sum) + eps))
template <class T>
void adagrad(const AdagradCoefficients<T>& c, const T* __restrict grad, T* __restrict p, T* __restrict sum,
             std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T g = grad[i] * c.grad_scale + c.decay * p[i];
    sum[i] = accumulated(sum[i], c.initial, g * g);
    p[i] -= c.lr * (g / (std::sqrt(sum[i]) + c.eps));
  }
}

/// The same operations in the same order, for a formula evaluator: weights are its tensor 0, gradients 1,
/// sums 2.
template <class Formula>
void adagrad_formula(const AdagradCoefficients<double>& c, Formula& f) {
  const auto p = f.load(0), before = f.load(2);
  const auto g = f.load(1) * c.grad_scale + c.decay * p;
  const auto sum = select(before, before, f.constant(c.initial)) + g * g;
  f.store(2, sum);
  f.store(0, p - c.lr * (g / (sqrt(sum) + c.eps)));
}

/// Sum of (scale x)^2 in eight partial sums, so that vector registers add in the order of this loop.
template <class T>
T sum_of_squares(const T* x, T scale, std::int64_t n) {
  constexpr std::int64_t kLanes = 8;
  std::array<T, kLanes> lane{};
  const std::int64_t whole = n - n % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) {
      const T value = scale * x[i + j];
      lane[j] += value * value;
    }
  }
  for (std::int64_t i = whole; i < n; ++i) {
    const T value = scale * x[i];
    lane[i - whole] += value * value;
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/// grad, p: [rows, width]; sum: [rows].
///   g = grad_scale grad;   sum = sum + mean(g^2);   p = p - lr / (sqrt(sum) + eps) g
template <class T>
void rowwise_adagrad(const AdagradCoefficients<T>& c, const T* __restrict grad, T* __restrict p,
                     T* __restrict sum, std::int64_t rows, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row, grad += width, p += width) {
    const T mean = sum_of_squares(grad, c.grad_scale, width) / static_cast<T>(width);
    sum[row] = accumulated(sum[row], c.initial, mean);
    const T rate = c.lr / (std::sqrt(sum[row]) + c.eps);
    for (std::int64_t i = 0; i < width; ++i) p[i] -= rate * (c.grad_scale * grad[i]);
  }
}

}  // namespace tenon::kernels
