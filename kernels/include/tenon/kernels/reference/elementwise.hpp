// Reference element-by-element operators: the formulas of elementwise.hpp with the C library's functions.
#pragma once

#include <cmath>
#include <numbers>
#include <tenon/kernels/elementwise.hpp>
#include <tenon/kernels/philox.hpp>
#include <tenon/kernels/reference/scalar.hpp>

namespace tenon::kernels::reference {

template <class S, class Fn>
void map(const S* x, S* y, std::int64_t n, Fn fn) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = put<S>(fn(get(x[i])));
}
template <class S, class Fn>
void map(const S* a, const S* b, S* y, std::int64_t n, Fn fn) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = put<S>(fn(get(a[i]), get(b[i])));
}

template <class S>
void exp(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](Arith<S> a) { return std::exp(a); });
}
template <class S>
void log(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](Arith<S> a) { return std::log(a); });
}
template <class S>
void tanh(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](Arith<S> a) { return std::tanh(a); });
}
template <class S>
void erf(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](Arith<S> a) { return std::erf(a); });
}

template <class A>
inline constexpr A kSqrt2OverPi = static_cast<A>(0.79788456080286535588);
template <class A>
inline constexpr A kGeluCubic = static_cast<A>(0.044715);

template <class S>
void gelu_tanh_forward(const S* x, S* y, std::int64_t n) {
  using A = Arith<S>;
  map(x, y, n,
      [](A a) { return a / 2 * (1 + std::tanh(kSqrt2OverPi<A> * (a + kGeluCubic<A> * a * a * a))); });
}
template <class S>
void gelu_tanh_backward(const S* x, const S* dy, S* dx, std::int64_t n) {
  using A = Arith<S>;
  map(x, dy, dx, n, [](A a, A g) {
    const A t = std::tanh(kSqrt2OverPi<A> * (a + kGeluCubic<A> * a * a * a));
    const A slope = kSqrt2OverPi<A> * (1 + 3 * kGeluCubic<A> * a * a);
    return g * ((1 + t) / 2 + a / 2 * (1 - t * t) * slope);
  });
}
template <class S>
void gelu_erf_forward(const S* x, S* y, std::int64_t n) {
  using A = Arith<S>;
  map(x, y, n, [](A a) { return a / 2 * (1 + std::erf(a / std::numbers::sqrt2_v<A>)); });
}
template <class S>
void gelu_erf_backward(const S* x, const S* dy, S* dx, std::int64_t n) {
  using A = Arith<S>;
  map(x, dy, dx, n, [](A a, A g) {
    const A cdf = (1 + std::erf(a / std::numbers::sqrt2_v<A>)) / 2;
    const A pdf = std::exp(-a * a / 2) * std::numbers::inv_sqrtpi_v<A> / std::numbers::sqrt2_v<A>;
    return g * (cdf + a * pdf);
  });
}

template <class S>
void silu_forward(const S* x, S* y, std::int64_t n) {
  map(x, y, n, [](Arith<S> a) { return a / (1 + std::exp(-a)); });
}
template <class S>
void silu_backward(const S* x, const S* dy, S* dx, std::int64_t n) {
  map(x, dy, dx, n, [](Arith<S> a, Arith<S> g) {
    const Arith<S> s = 1 / (1 + std::exp(-a));
    return g * (s * (1 + a * (1 - s)));
  });
}

template <class S>
void add(const S* a, const S* b, S* y, std::int64_t n) {
  map(a, b, y, n, [](Arith<S> p, Arith<S> q) { return p + q; });
}
template <class S>
void scale(Arith<S> alpha, const S* x, S* y, std::int64_t n) {
  map(x, y, n, [alpha](Arith<S> a) { return alpha * a; });
}
template <class S>
void axpy(Arith<S> alpha, const S* x, S* y, std::int64_t n) {
  map(x, y, y, n, [alpha](Arith<S> a, Arith<S> b) { return b + alpha * a; });
}
template <class S>
void lerp(Arith<S> w, const S* a, const S* b, S* y, std::int64_t n) {
  map(a, b, y, n, [w](Arith<S> p, Arith<S> q) { return p + w * (q - p); });
}
template <class S>
void fill(Arith<S> value, S* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = put<S>(value);
}
template <class S>
void add_bias(const S* x, const Arith<S>* bias, S* y, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < cols; ++j) y[r * cols + j] = put<S>(get(x[r * cols + j]) + bias[j]);
}

template <class S>
void dropout(std::uint64_t key, std::uint64_t first_index, std::uint32_t threshold, Arith<S> scale,
             const S* x, S* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const bool keep = philox_word(key, first_index + static_cast<std::uint64_t>(i)) >= threshold;
    y[i] = put<S>(keep ? get(x[i]) * scale : Arith<S>{0});
  }
}

}  // namespace tenon::kernels::reference
