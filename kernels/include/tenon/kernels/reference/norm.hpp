// Reference layer and RMS normalization: the formulas of norm.hpp, sums in order.
#pragma once

#include <cmath>
#include <tenon/kernels/norm.hpp>
#include <tenon/kernels/reference/scalar.hpp>

namespace tenon::kernels::reference {

template <class S>
void layer_norm_forward(const LayerNormForwardArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  using A = Arith<S>;
  const A cols = static_cast<A>(args.cols);
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const S* x = args.x + r * args.cols;
    A sum = 0, squares = 0;
    for (std::int64_t j = 0; j < args.cols; ++j) sum += get(x[j]);
    const A mean = sum / cols;
    for (std::int64_t j = 0; j < args.cols; ++j) squares += (get(x[j]) - mean) * (get(x[j]) - mean);
    const A rstd = 1 / std::sqrt(squares / cols + args.eps);
    for (std::int64_t j = 0; j < args.cols; ++j) {
      const A gain = args.gain != nullptr ? args.gain[j] : A{1};
      const A bias = args.bias != nullptr ? args.bias[j] : A{0};
      args.y[r * args.cols + j] = put<S>((get(x[j]) - mean) * rstd * gain + bias);
    }
    if (args.mean != nullptr) args.mean[r] = mean;
    if (args.rstd != nullptr) args.rstd[r] = rstd;
  }
}

template <class S>
void layer_norm_backward_input(const LayerNormBackwardArgs<S>& args, std::int64_t row_begin,
                               std::int64_t row_end) {
  using A = Arith<S>;
  const A cols = static_cast<A>(args.cols);
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const auto g = [&](std::int64_t j) {
      return get(args.dy[r * args.cols + j]) * (args.gain != nullptr ? args.gain[j] : A{1});
    };
    const auto h = [&](std::int64_t j) {
      return (get(args.x[r * args.cols + j]) - args.mean[r]) * args.rstd[r];
    };
    A sum_g = 0, sum_gh = 0;
    for (std::int64_t j = 0; j < args.cols; ++j) {
      sum_g += g(j);
      sum_gh += g(j) * h(j);
    }
    for (std::int64_t j = 0; j < args.cols; ++j) {
      S& dx = args.dx[r * args.cols + j];
      const A d = args.rstd[r] * (g(j) - sum_g / cols - h(j) * (sum_gh / cols));
      dx = put<S>(args.accumulate_dx ? get(dx) + d : d);
    }
  }
}

template <class S>
void layer_norm_backward_params(const LayerNormBackwardArgs<S>& args, std::int64_t col_begin,
                                std::int64_t col_end) {
  using A = Arith<S>;
  for (std::int64_t j = col_begin; j < col_end; ++j) {
    A dgain = 0, dbias = 0;
    for (std::int64_t r = 0; r < args.rows; ++r) {
      const A dy = get(args.dy[r * args.cols + j]);
      dgain += dy * ((get(args.x[r * args.cols + j]) - args.mean[r]) * args.rstd[r]);
      dbias += dy;
    }
    if (args.dgain != nullptr) args.dgain[j] = (args.accumulate_params ? args.dgain[j] : A{0}) + dgain;
    if (args.dbias != nullptr) args.dbias[j] = (args.accumulate_params ? args.dbias[j] : A{0}) + dbias;
  }
}

template <class S>
void rms_norm_forward(const LayerNormForwardArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  using A = Arith<S>;
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const S* x = args.x + r * args.cols;
    A squares = 0;
    for (std::int64_t j = 0; j < args.cols; ++j) squares += get(x[j]) * get(x[j]);
    const A rstd = 1 / std::sqrt(squares / static_cast<A>(args.cols) + args.eps);
    for (std::int64_t j = 0; j < args.cols; ++j)
      args.y[r * args.cols + j] = put<S>(get(x[j]) * rstd * (args.gain != nullptr ? args.gain[j] : A{1}));
    if (args.rstd != nullptr) args.rstd[r] = rstd;
  }
}

template <class S>
void rms_norm_backward_input(const LayerNormBackwardArgs<S>& args, std::int64_t row_begin,
                             std::int64_t row_end) {
  using A = Arith<S>;
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const A rstd = args.rstd[r];
    const auto g = [&](std::int64_t j) {
      return get(args.dy[r * args.cols + j]) * (args.gain != nullptr ? args.gain[j] : A{1});
    };
    const auto h = [&](std::int64_t j) { return get(args.x[r * args.cols + j]) * rstd; };
    A sum = 0;
    for (std::int64_t j = 0; j < args.cols; ++j) sum += g(j) * h(j);
    for (std::int64_t j = 0; j < args.cols; ++j) {
      S& dx = args.dx[r * args.cols + j];
      const A d = rstd * (g(j) - h(j) * (sum / static_cast<A>(args.cols)));
      dx = put<S>(args.accumulate_dx ? get(dx) + d : d);
    }
  }
}

template <class S>
void rms_norm_backward_params(const LayerNormBackwardArgs<S>& args, std::int64_t col_begin,
                              std::int64_t col_end) {
  using A = Arith<S>;
  for (std::int64_t j = col_begin; j < col_end; ++j) {
    A dgain = 0;
    for (std::int64_t r = 0; r < args.rows; ++r)
      dgain += get(args.dy[r * args.cols + j]) * (get(args.x[r * args.cols + j]) * args.rstd[r]);
    args.dgain[j] = (args.accumulate_params ? args.dgain[j] : A{0}) + dgain;
  }
}

}  // namespace tenon::kernels::reference
