// Reference softmax and cross-entropy: the formulas of softmax.hpp, sums in order.
#pragma once

#include <cmath>
#include <limits>
#include <tenon/kernels/reference/scalar.hpp>
#include <tenon/kernels/softmax.hpp>

namespace tenon::kernels::reference {

template <class S>
void softmax_forward(Arith<S> factor, const S* x, S* y, std::int64_t rows, std::int64_t cols) {
  using A = Arith<S>;
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    A highest = -std::numeric_limits<A>::infinity(), sum = 0;
    for (std::int64_t j = 0; j < cols; ++j)
      highest = factor * get(x[j]) > highest ? factor * get(x[j]) : highest;
    for (std::int64_t j = 0; j < cols; ++j) sum += std::exp(factor * get(x[j]) - highest);
    for (std::int64_t j = 0; j < cols; ++j) y[j] = put<S>(std::exp(factor * get(x[j]) - highest) / sum);
  }
}

template <class S>
void softmax_backward(Arith<S> factor, const S* y, const S* dy, S* dx, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < rows; ++r, y += cols, dy += cols, dx += cols) {
    Arith<S> dot = 0;
    for (std::int64_t j = 0; j < cols; ++j) dot += get(y[j]) * get(dy[j]);
    for (std::int64_t j = 0; j < cols; ++j) dx[j] = put<S>(factor * get(y[j]) * (get(dy[j]) - dot));
  }
}

template <class S>
void cross_entropy_begin(const CrossEntropyArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    args.running_max[r] = -std::numeric_limits<Arith<S>>::infinity();
    args.running_sum[r] = 0;
    args.target_logit[r] = 0;
  }
}

template <class S>
void cross_entropy_chunk(const CrossEntropyArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  using A = Arith<S>;
  constexpr A kMinusInfinity = -std::numeric_limits<A>::infinity();
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const S* x = args.logits + r * args.ld;
    A highest = args.running_max[r];
    for (std::int64_t j = 0; j < args.cols; ++j) highest = get(x[j]) > highest ? get(x[j]) : highest;
    const A base = highest == kMinusInfinity ? A{0} : highest;
    A sum = args.running_sum[r] == 0 ? A{0} : args.running_sum[r] * std::exp(args.running_max[r] - base);
    for (std::int64_t j = 0; j < args.cols; ++j) sum += std::exp(get(x[j]) - base);
    args.running_max[r] = highest;
    args.running_sum[r] = sum;
    const std::int64_t target = args.targets[r] - args.col_begin;
    if (target >= 0 && target < args.cols) args.target_logit[r] = get(x[target]);
  }
}

template <class S>
void cross_entropy_finish(const CrossEntropyArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  using A = Arith<S>;
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const A highest = args.running_max[r];
    const A lse =
        (highest == -std::numeric_limits<A>::infinity() ? A{0} : highest) + std::log(args.running_sum[r]);
    if (args.lse != nullptr) args.lse[r] = lse;
    if (args.loss != nullptr) args.loss[r] = args.targets[r] < 0 ? A{0} : lse - args.target_logit[r];
  }
}

template <class S>
void cross_entropy_backward(const CrossEntropyArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  using A = Arith<S>;
  for (std::int64_t r = row_begin; r < row_end; ++r)
    for (std::int64_t j = 0; j < args.cols; ++j) {
      const A p = std::exp(get(args.logits[r * args.ld + j]) - args.lse[r]);
      const A wanted = args.floor + (args.targets[r] == args.col_begin + j ? args.peak : 0);
      args.dlogits[r * args.ld + j] = put<S>(args.targets[r] < 0 ? A{0} : (p - wanted) * args.scale);
    }
}

}  // namespace tenon::kernels::reference
