// Checked arguments of normalisations (families NeuralOps, NormalisationOps and PartNormOps) as pointers;
// null for what the caller leaves out. Does not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/norm.hpp>
#include <tenon/ops/norm.hpp>

namespace tenon::device_arguments {

/// Normalisation of rows of x, with a mean (layer norm) or without (RMS norm: pass no bias and no mean).
template <class S>
kernels::LayerNormForwardArgs<S> row_norm(const TensorView& x, const TensorView& gain, const TensorView& bias,
                                          double eps, const TensorView& y, const TensorView& mean,
                                          const TensorView& rstd, const char* where) {
  using A = kernels::Arith<S>;
  const auto [rows, columns] = as_matrix(x);
  kernels::LayerNormForwardArgs<S> args;
  args.rows = rows;
  args.cols = columns;
  args.eps = static_cast<A>(eps);
  args.x = checked<S>(x, rows * columns, where, "x");
  args.gain = checked_or_null<A>(gain, columns, where, "gain");
  args.bias = checked_or_null<A>(bias, columns, where, "bias");
  args.y = checked<S>(y, rows * columns, where, "y");
  args.mean = checked_or_null<A>(mean, rows, where, "mean");
  args.rstd = checked_or_null<A>(rstd, rows, where, "rstd");
  return args;
}

/// The tensors of its backward. Without a mean (RMS norm) `mean` is null, and there is no dbias.
struct RowNormGradient {
  const TensorView &x, &gain;
  const TensorView* mean;
  const TensorView &rstd, &dy, &dx;
  bool accumulate;
  const TensorView &dgain, &dbias;
  bool accumulate_parameters;
};
template <class S>
kernels::LayerNormBackwardArgs<S> row_norm_backward(const RowNormGradient& of, const char* where) {
  using A = kernels::Arith<S>;
  const auto [rows, columns] = as_matrix(of.x);
  kernels::LayerNormBackwardArgs<S> args;
  args.rows = rows;
  args.cols = columns;
  args.x = checked<S>(of.x, rows * columns, where, "x");
  args.dy = checked<S>(of.dy, rows * columns, where, "dy");
  args.gain = checked_or_null<A>(of.gain, columns, where, "gain");
  if (of.mean != nullptr) args.mean = checked<A>(*of.mean, rows, where, "mean");
  args.rstd = checked<A>(of.rstd, rows, where, "rstd");
  args.dx = checked_or_null<S>(of.dx, rows * columns, where, "dx");
  args.accumulate_dx = of.accumulate;
  args.dgain = checked_or_null<A>(of.dgain, columns, where, "dgain");
  args.dbias = checked_or_null<A>(of.dbias, columns, where, "dbias");
  args.accumulate_params = of.accumulate_parameters;
  return args;
}

/// Extents of x [outer, sets, inner].
struct NormSets {
  std::int64_t outer = 0, sets = 0, inner = 0;
};

/// Channels of x [batch, channels, ...] as sets.
inline NormSets channels_as_sets(const TensorView& x, const char* where) {
  if (x.shape.rank() < 2) refuse(where, "x must be [batch, channels, ...], found " + x.shape.text());
  const std::int64_t both = x.shape[0] * x.shape[1];
  return {x.shape[0], x.shape[1], both == 0 ? 0 : x.elements() / both};
}

inline NormSets norm_sets(const TensorView& x, const char* where) {
  if (x.shape.rank() != 3) refuse(where, "x must be [outer, sets, inner], found " + x.shape.text());
  return {x.shape[0], x.shape[1], x.shape[2]};
}

template <class S>
kernels::BatchNormForwardArgs<S> batch_norm_inputs(const BatchNormSpec& spec, const TensorView& x,
                                                   const TensorView& gain, const TensorView& bias,
                                                   const TensorView& y, const char* where) {
  using A = kernels::Arith<S>;
  const auto [batch, channels, places] = channels_as_sets(x, where);
  kernels::BatchNormForwardArgs<S> args;
  args.batch = batch;
  args.channels = channels;
  args.places = places;
  args.eps = static_cast<A>(spec.eps);
  args.momentum = spec.momentum;
  args.x = checked<S>(x, x.elements(), where, "x");
  args.gain = checked_or_null<A>(gain, channels, where, "gain");
  args.bias = checked_or_null<A>(bias, channels, where, "bias");
  args.y = checked<S>(y, x.elements(), where, "y");
  return args;
}

/// Batch normalisation with the statistics of x, which it writes.
template <class S>
kernels::BatchNormForwardArgs<S> batch_norm(const BatchNormSpec& spec, const TensorView& x,
                                            const TensorView& gain, const TensorView& bias,
                                            const TensorView& running_mean,
                                            const TensorView& running_variance, const TensorView& y,
                                            const TensorView& mean, const TensorView& rstd,
                                            const char* where) {
  using A = kernels::Arith<S>;
  auto args = batch_norm_inputs<S>(spec, x, gain, bias, y, where);
  args.mean = checked<A>(mean, args.channels, where, "mean");
  args.rstd = checked<A>(rstd, args.channels, where, "rstd");
  args.running_mean = checked_or_null<A>(running_mean, args.channels, where, "running_mean");
  args.running_variance = checked_or_null<A>(running_variance, args.channels, where, "running_variance");
  return args;
}

/// With given statistics, in running_mean and running_variance of the arguments.
template <class S>
kernels::BatchNormForwardArgs<S> batch_norm_fixed(const BatchNormSpec& spec, const TensorView& x,
                                                  const TensorView& gain, const TensorView& bias,
                                                  const TensorView& mean, const TensorView& variance,
                                                  const TensorView& y, const char* where) {
  using A = kernels::Arith<S>;
  auto args = batch_norm_inputs<S>(spec, x, gain, bias, y, where);
  args.running_mean = checked<A>(mean, args.channels, where, "mean");
  args.running_variance = checked<A>(variance, args.channels, where, "variance");
  return args;
}

/// The tensors of a batch normalisation's backward.
struct BatchNormGradient {
  const TensorView &x, &gain, &mean, &rstd, &dy, &dx;
  bool accumulate;
  const TensorView &dgain, &dbias;
  bool accumulate_parameters;
};
template <class S>
kernels::BatchNormBackwardArgs<S> batch_norm_backward(const BatchNormGradient& of, const char* where) {
  using A = kernels::Arith<S>;
  const auto [batch, channels, places] = channels_as_sets(of.x, where);
  kernels::BatchNormBackwardArgs<S> args;
  args.batch = batch;
  args.channels = channels;
  args.places = places;
  args.x = checked<S>(of.x, of.x.elements(), where, "x");
  args.dy = checked<S>(of.dy, of.x.elements(), where, "dy");
  args.gain = checked_or_null<A>(of.gain, channels, where, "gain");
  args.mean = checked<A>(of.mean, channels, where, "mean");
  args.rstd = checked<A>(of.rstd, channels, where, "rstd");
  args.dx = checked_or_null<S>(of.dx, of.x.elements(), where, "dx");
  args.accumulate_dx = of.accumulate;
  args.dgain = checked_or_null<A>(of.dgain, channels, where, "dgain");
  args.dbias = checked_or_null<A>(of.dbias, channels, where, "dbias");
  args.accumulate_params = of.accumulate_parameters;
  return args;
}

/// Inputs of a normalisation over shards.
template <class S>
struct PartNormInputs {
  PartNormInputs(const PartNormSpec& spec, const TensorView& x_view, const TensorView& gain_view,
                 const TensorView& bias_view, const TensorView& mean_view, const TensorView& rstd_view,
                 const char* where)
      : of(norm_sets(x_view, where)), per_set(spec.gain_per_set) {
    using A = kernels::Arith<S>;
    const std::int64_t gains = per_set ? of.sets : of.inner;
    x = checked<S>(x_view, x_view.elements(), where, "x");
    gain = checked_or_null<A>(gain_view, gains, where, "gain");
    bias = checked_or_null<A>(bias_view, gains, where, "bias");
    mean = checked_or_null<A>(mean_view, of.sets, where, "mean");
    rstd = checked<A>(rstd_view, of.sets, where, "rstd");
  }

  NormSets of;
  bool per_set;  ///< gain and bias are [sets], else [inner]
  const S* x;
  const kernels::Arith<S>*gain, *bias, *mean, *rstd;
};

/// Sums over the elements of sets: of x, or of the squares of what remains of x without the mean.
template <class S>
struct PartNormSums {
  PartNormSums(const TensorView& x_view, const TensorView& sums_view, const char* where)
      : of(norm_sets(x_view, where)), x(checked<S>(x_view, x_view.elements(), where, "x")) {
    out = checked<double>(sums_view, of.sets, where, "sums");
  }
  /// Sums squares; without `sums_view` the mean is 0.
  PartNormSums(const TensorView& x_view, const TensorView& sums_view, const TensorView& squares_view,
               const char* where)
      : of(norm_sets(x_view, where)), x(checked<S>(x_view, x_view.elements(), where, "x")) {
    sums = checked_or_null<double>(sums_view, of.sets, where, "sums");
    out = checked<double>(squares_view, of.sets, where, "squares");
  }

  NormSets of;
  const S* x;
  const double* sums = nullptr;
  double* out;
};

/// Sums of sets, and the statistics that follow from them; `sums`, `mean` and running values may be null.
template <class A>
struct PartNormStatistics {
  PartNormStatistics(const TensorView& sums_view, const TensorView& squares_view, const TensorView& mean_view,
                     const TensorView& rstd_view, const TensorView& running_mean_view,
                     const TensorView& running_variance_view, const char* where)
      : sets(rstd_view.elements()),
        sums(checked_or_null<double>(sums_view, sets, where, "sums")),
        squares(checked<double>(squares_view, sets, where, "squares")),
        mean(checked_or_null<A>(mean_view, sets, where, "mean")),
        rstd(checked<A>(rstd_view, sets, where, "rstd")),
        running_mean(checked_or_null<A>(running_mean_view, sets, where, "running_mean")),
        running_variance(checked_or_null<A>(running_variance_view, sets, where, "running_variance")) {}

  std::int64_t sets;
  const double *sums, *squares;
  A *mean, *rstd, *running_mean, *running_variance;
};

}  // namespace tenon::device_arguments
