// Arguments of pointwise maps, dropout and softmax cross-entropy (family NeuralOps; its normalisation is in
// norms.hpp): the tensors of a call as pointers, and the random key of dropout. Does not use fmt, which nvcc
// does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/softmax.hpp>
#include <tenon/random.hpp>

#include <algorithm>
#include <limits>
#include <string>

namespace tenon::device_arguments {

/// y from x, or dx from x and dy; dy is null where there is none.
template <class S>
struct PointwiseTensors {
  std::int64_t n = 0;
  const S *x = nullptr, *dy = nullptr;
  S* out = nullptr;
};

template <class S>
PointwiseTensors<S> pointwise(const TensorView& x, const TensorView& y, const char* where) {
  PointwiseTensors<S> of;
  of.n = x.elements();
  of.x = checked<S>(x, of.n, where, "x");
  of.out = checked<S>(y, of.n, where, "y");
  return of;
}

template <class S>
PointwiseTensors<S> pointwise_backward(const TensorView& x, const TensorView& dy, const TensorView& dx,
                                       const char* where) {
  PointwiseTensors<S> of;
  of.n = x.elements();
  of.x = checked<S>(x, of.n, where, "x");
  of.dy = checked<S>(dy, of.n, where, "dy");
  of.out = checked<S>(dx, of.n, where, "dx");
  return of;
}

/// Kernels count elements within one key, so the step is mixed into a key of its own, drawn at a position
/// that no element has. The same on every device.
inline std::uint64_t step_key(RandomKey key, std::uint64_t step) {
  const auto words = random_words(key, step, std::numeric_limits<std::uint64_t>::max());
  return words[0] | (std::uint64_t{words[1]} << 32);
}

inline void check_dropout(double p) {
  if (!(p >= 0 && p < 1)) refuse_config("dropout: p is " + std::to_string(p) + ", expected 0 <= p < 1");
}

/// Logits and targets of a cross-entropy. check_targets(targets, rows, columns) refuses a target of no column
/// where the device's memory permits; negative ones are ignored.
template <class S, class CheckTargets>
kernels::CrossEntropyArgs<S> cross_entropy_inputs(const TensorView& logits, const TensorView& targets,
                                                  const char* where, CheckTargets check_targets) {
  const auto [rows, columns] = as_matrix(logits);
  kernels::CrossEntropyArgs<S> args;
  args.rows = rows;
  args.cols = args.ld = columns;
  args.logits = checked<S>(logits, rows * columns, where, "logits");
  args.targets = checked<std::int32_t>(targets, rows, where, "targets");
  check_targets(args.targets, rows, columns);
  return args;
}

/// Completes inputs for the forward; loss and lse may be absent.
template <class S>
void cross_entropy_outputs(kernels::CrossEntropyArgs<S>& args, const TensorView& loss, const TensorView& lse,
                           const char* where) {
  using A = kernels::Arith<S>;
  args.loss = checked_or_null<A>(loss, args.rows, where, "loss");
  args.lse = checked_or_null<A>(lse, args.rows, where, "lse");
}

/// Completes inputs for the backward, except dlogits, whose dtype may differ from that of the logits.
template <class S>
void cross_entropy_gradient(kernels::CrossEntropyArgs<S>& args, const TensorView& lse, double smoothing,
                            double scale, const char* where) {
  using A = kernels::Arith<S>;
  args.lse = checked<A>(lse, args.rows, where, "lse");
  args.scale = static_cast<A>(scale);
  args.peak = static_cast<A>(1 - smoothing);
  args.floor = static_cast<A>(smoothing / static_cast<double>(std::max<std::int64_t>(1, args.cols)));
}

}  // namespace tenon::device_arguments
