// Arguments of the operator families of Mamba-2 layers (<tenon/sdk/ops/ssd.hpp>): checks of specs, the
// tensors of calls as pointers, and rows that go on with kept sequences, once for all devices of this tree.
// Does not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/sdk/ops/ssd.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

namespace tenon::device_ssd {

using device_arguments::checked;
using device_arguments::checked_or_null;
using kernels::Arith;

inline constexpr const char* kConv = "causal convolution";
inline constexpr const char* kConvBackward = "causal convolution backward";
inline constexpr const char* kConvStep = "causal convolution step";
inline constexpr const char* kSsd = "ssd";
inline constexpr const char* kSsdBackward = "ssd backward";
inline constexpr const char* kSsdStep = "ssd step";
inline constexpr const char* kGatedNorm = "gated norm";
inline constexpr const char* kGatedNormBackward = "gated norm backward";

// Runs of columns.

/// The column of a wider row for every column of the joined runs.
inline std::vector<std::int64_t> run_columns(const ColumnRuns& runs) {
  std::vector<std::int64_t> columns;
  for (const ColumnRun& run : runs)
    for (std::int64_t i = 0; i < run.width; ++i) columns.push_back(run.first + i);
  return columns;
}

/// Refuses runs that leave a row of `columns`, that overlap, or that have another width than `expected`
/// together; -1 = any but none.
inline void check_runs(const ColumnRuns& runs, std::int64_t columns, std::int64_t expected, const char* where,
                       const char* name) {
  const auto refuse = [&](const std::string& what) {
    device_arguments::refuse_config(std::string(where) + ": " + name + ": " + what);
  };
  const auto text = [](const ColumnRun& run) {
    std::string range(1, '[');
    range.append(std::to_string(run.first)).append(", ");
    return range.append(std::to_string(run.first + run.width)).append(")");
  };
  std::vector<ColumnRun> sorted;
  std::int64_t width = 0;
  for (const ColumnRun& run : runs) {
    if (run.first < 0 || run.width < 0 || run.first > columns || run.width > columns - run.first)
      refuse("the run of columns " + text(run) + " leaves a row of " + std::to_string(columns));
    if (run.width > 0) sorted.push_back(run);
    width += run.width;
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const ColumnRun& a, const ColumnRun& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].first < sorted[i - 1].first + sorted[i - 1].width)
      refuse("the runs of columns " + text(sorted[i - 1]) + " and " + text(sorted[i]) + " overlap");
  }
  if (expected < 0 ? width < 1 : width != expected)
    refuse("the runs have " + std::to_string(width) + " columns together, expected " +
           (expected < 0 ? "at least 1" : std::to_string(expected)));
}

// Specs.

/// Parameters are in the arithmetic type of the activations, or in bf16.
inline void check_parameter(DType dtype, DType parameter, const char* where) {
  const DType arithmetic = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  if (parameter == arithmetic || parameter == DType::kBF16) return;
  device_arguments::refuse_config(
      std::string(where) + ": parameters are " + std::string(dtype_name(parameter)) + ", expected " +
      std::string(dtype_name(arithmetic)) + " or bf16 for values in " + std::string(dtype_name(dtype)));
}

inline void check_causal_conv(const CausalConvSpec& spec) {
  if (spec.batch < 0 || spec.time < 0 || spec.width < 1) {
    device_arguments::refuse_config(
        std::string(kConv) + " needs a width of at least 1, and batch and time of at least 0, found " +
        std::to_string(spec.width) + ", " + std::to_string(spec.batch) + " and " + std::to_string(spec.time));
  }
  check_runs(spec.channels, spec.columns, -1, kConv, "channels");
  check_parameter(spec.dtype, spec.parameter, kConv);
}

inline void check_ssd(const SsdSpec& spec) {
  const auto refuse = [](const std::string& what) {
    device_arguments::refuse_config(std::string(kSsd) + " " + what);
  };
  if (spec.batch < 0 || spec.time < 0)
    refuse("needs batch and time of at least 0, found " + std::to_string(spec.batch) + " and " +
           std::to_string(spec.time));
  if (spec.heads < 1 || spec.head_width < 1 || spec.groups < 1 || spec.state < 1 || spec.chunk < 1) {
    refuse("needs heads, head_width, groups, state and chunk of at least 1, found " +
           std::to_string(spec.heads) + ", " + std::to_string(spec.head_width) + ", " +
           std::to_string(spec.groups) + ", " + std::to_string(spec.state) + " and " +
           std::to_string(spec.chunk));
  }
  if (spec.heads % spec.groups != 0)
    refuse("needs groups that divide the heads, found groups " + std::to_string(spec.groups) + " and heads " +
           std::to_string(spec.heads));
  const bool bounds = spec.dt_min >= 0 && spec.dt_max >= 0 && std::isfinite(spec.dt_min) &&
                      std::isfinite(spec.dt_max) && (spec.dt_max == 0 || spec.dt_min <= spec.dt_max);
  if (!bounds)
    refuse("needs 0 <= dt_min <= dt_max, where 0 is no bound, found " + std::to_string(spec.dt_min) +
           " and " + std::to_string(spec.dt_max));
  check_runs(spec.steps, spec.columns, spec.heads, kSsd, "steps");
}

inline void check_gated_norm(const GatedNormSpec& spec) {
  if (spec.rows < 0 || spec.groups < 1 || spec.group_width < 1) {
    device_arguments::refuse_config(
        std::string(kGatedNorm) +
        " needs groups and group_width of at least 1, and rows of at least 0, found " +
        std::to_string(spec.groups) + ", " + std::to_string(spec.group_width) + " and " +
        std::to_string(spec.rows));
  }
  if (!(spec.eps > 0) || !std::isfinite(spec.eps))
    device_arguments::refuse_config(std::string(kGatedNorm) + " needs eps above 0, found " +
                                    std::to_string(spec.eps));
  check_runs(spec.gates, spec.columns, spec.groups * spec.group_width, kGatedNorm, "gates");
  check_parameter(spec.dtype, spec.parameter, kGatedNorm);
}

/// Calls body(std::type_identity<P>) with the type of parameters in memory, for values of S.
template <class S, class Body>
decltype(auto) with_parameter(DType parameter, Body&& body) {
  if (parameter == DType::kBF16) return body(std::type_identity<kernels::Bf16>{});
  return body(std::type_identity<Arith<S>>{});
}

// Rows that go on with sequences.

/// Bytes of a kept sequence, such that the next begins at a multiple of 16.
inline std::int64_t whole_sequence(std::int64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

/// Checks rows of steps, once per call. Keeps room for it.
class StepRows {
 public:
  explicit StepRows(std::int64_t batch) : sorted_(static_cast<std::size_t>(batch)) {}

  /// state: u8 of whole sequences; returns its memory.
  std::uint8_t* check(const CachedRows& rows, std::int64_t time, const TensorView& state,
                      std::int64_t sequence_bytes, const char* where) {
    const std::int64_t sequences = sequence_bytes > 0 ? state.elements() / sequence_bytes : 0;
    // A convolution of width 1 keeps nothing, so every number is a sequence of its state.
    auto* const memory = sequence_bytes > 0
                             ? checked<std::uint8_t>(state, sequences * sequence_bytes, where, "state")
                             : state.as<std::uint8_t>();
    const std::size_t batch = sorted_.size();
    if (rows.first.size() != batch || rows.count.size() != batch || rows.kept.size() != batch) {
      device_arguments::refuse(
          where, "rows have " + std::to_string(rows.first.size()) + ", " + std::to_string(rows.count.size()) +
                     " and " + std::to_string(rows.kept.size()) + " entries (first, count, kept), expected " +
                     std::to_string(batch) + " each");
    }
    std::size_t going = 0;
    for (std::size_t row = 0; row < batch; ++row) {
      const std::int64_t count = rows.count[row], first = rows.first[row], kept = rows.kept[row];
      if (count < 0 || count > time || first < 0) {
        device_arguments::refuse(where, "row " + std::to_string(row) + " has " + std::to_string(count) +
                                            " places from position " + std::to_string(first) +
                                            " on, expected 0 to " + std::to_string(time) +
                                            " places from a position of at least 0 on");
      }
      if (count == 0) continue;
      if (kept < 0 || (sequence_bytes > 0 && kept >= sequences)) {
        device_arguments::refuse(where, "row " + std::to_string(row) + " goes on with sequence " +
                                            std::to_string(kept) + ", expected one of the " +
                                            std::to_string(sequences) + " in the state");
      }
      sorted_[going++] = kept;
    }
    const auto end = sorted_.begin() + static_cast<std::ptrdiff_t>(going);
    std::sort(sorted_.begin(), end);
    const auto twice = std::adjacent_find(sorted_.begin(), end);
    if (twice != end)
      device_arguments::refuse(
          where, "two rows go on with sequence " + std::to_string(*twice) + ", expected one row for each");
    return memory;
  }

 private:
  std::vector<std::int64_t> sorted_;
};

// Tensors of calls. S: storage of activations, P: of parameters.

template <class S, class P>
struct ConvTensors {
  const S* x = nullptr;
  const std::int32_t* documents = nullptr;  ///< null = one
  const P *weight = nullptr, *bias = nullptr;
  S* y = nullptr;         ///< of forward and step
  const S* dy = nullptr;  ///< this and the next of backward
  S* dx = nullptr;        ///< of whole rows; the runs alone are written
  P *dweight = nullptr, *dbias = nullptr;
};

template <class S, class P>
ConvTensors<S, P> conv_inputs(const CausalConvSpec& spec, const TensorView& x, const TensorView& documents,
                              const TensorView& weight, const TensorView& bias, const char* where) {
  const std::int64_t places = spec.batch * spec.time, channels = columns_of_runs(spec.channels);
  ConvTensors<S, P> t;
  t.x = checked<S>(x, places * spec.columns, where, "x");
  t.documents = checked_or_null<std::int32_t>(documents, places, where, "documents");
  t.weight = checked<P>(weight, channels * spec.width, where, "weight");
  t.bias = checked<P>(bias, channels, where, "bias");
  return t;
}

template <class S, class P>
ConvTensors<S, P> conv_forward(const CausalConvSpec& spec, const TensorView& x, const TensorView& documents,
                               const TensorView& weight, const TensorView& bias, const TensorView& y,
                               const char* where) {
  auto t = conv_inputs<S, P>(spec, x, documents, weight, bias, where);
  t.y = checked<S>(y, spec.batch * spec.time * columns_of_runs(spec.channels), where, "y");
  return t;
}

template <class S, class P>
ConvTensors<S, P> conv_backward(const CausalConvSpec& spec, const TensorView& x, const TensorView& documents,
                                const TensorView& weight, const TensorView& bias, const TensorView& dy,
                                const TensorView& dx, const TensorView& dweight, const TensorView& dbias) {
  constexpr const char* kWhere = kConvBackward;
  const std::int64_t places = spec.batch * spec.time, channels = columns_of_runs(spec.channels);
  auto t = conv_inputs<S, P>(spec, x, documents, weight, bias, kWhere);
  t.dy = checked<S>(dy, places * channels, kWhere, "dy");
  t.dx = checked<S>(dx, places * spec.columns, kWhere, "dx");
  t.dweight = checked<P>(dweight, channels * spec.width, kWhere, "dweight");
  t.dbias = checked<P>(dbias, channels, kWhere, "dbias");
  return t;
}

template <class S>
struct SsdTensors {
  using A = Arith<S>;
  const S *xbc = nullptr, *projected = nullptr;
  const A *a_log = nullptr, *dt_bias = nullptr, *d = nullptr;
  const std::int32_t* documents = nullptr;  ///< null = one
  const A* initial = nullptr;               ///< null = zeros; none in a step
  S* y = nullptr;                           ///< of forward and step
  A *states = nullptr, *last = nullptr;     ///< of forward, null where not wanted
};

template <class S>
SsdTensors<S> ssd_inputs(const SsdSpec& spec, const SsdInputs& in, const char* where) {
  using A = Arith<S>;
  const std::int64_t places = spec.batch * spec.time;
  SsdTensors<S> t;
  t.xbc = checked<S>(in.xbc, places * spec.xbc_columns(), where, "xbc");
  t.projected = checked<S>(in.projected, places * spec.columns, where, "projected");
  t.a_log = checked<A>(in.a_log, spec.heads, where, "a_log");
  t.dt_bias = checked<A>(in.dt_bias, spec.heads, where, "dt_bias");
  t.d = checked<A>(in.d, spec.heads, where, "d");
  t.documents = checked_or_null<std::int32_t>(in.documents, places, where, "documents");
  t.initial = checked_or_null<A>(in.initial, spec.batch * spec.heads * spec.state * spec.head_width, where,
                                 "initial");
  return t;
}

template <class S>
SsdTensors<S> ssd_forward(const SsdSpec& spec, const SsdInputs& in, const TensorView& y,
                          const TensorView& states, const TensorView& last) {
  using A = Arith<S>;
  auto t = ssd_inputs<S>(spec, in, kSsd);
  const std::int64_t all = spec.batch * spec.heads * spec.state * spec.head_width;
  t.y = checked<S>(y, spec.batch * spec.time * spec.heads * spec.head_width, kSsd, "y");
  t.states = checked_or_null<A>(states, all * spec.chunks(), kSsd, "states");
  t.last = checked_or_null<A>(last, all, kSsd, "last");
  return t;
}

template <class S>
SsdTensors<S> ssd_step(const SsdSpec& spec, const SsdInputs& in, const TensorView& y) {
  if (in.initial.data != nullptr)
    device_arguments::refuse(kSsdStep,
                             "there is an initial state, expected none: the kept sequences have it");
  auto t = ssd_inputs<S>(spec, in, kSsdStep);
  t.y = checked<S>(y, spec.batch * spec.time * spec.heads * spec.head_width, kSsdStep, "y");
  return t;
}

/// Inputs of backward and what it writes; null where a gradient is not wanted.
template <class S>
struct SsdGradientTensors {
  using A = Arith<S>;
  SsdTensors<S> in;
  const A* states = nullptr;
  const S* dy = nullptr;
  const A* dlast = nullptr;  ///< null = zeros
  S *dxbc = nullptr, *dprojected = nullptr;
  A *da_log = nullptr, *ddt_bias = nullptr, *dd = nullptr, *dinitial = nullptr;
  bool accumulate = false;
};

template <class S>
SsdGradientTensors<S> ssd_backward(const SsdSpec& spec, const SsdInputs& in, const TensorView& states,
                                   const TensorView& dy, const TensorView& dlast,
                                   const SsdGradients& gradients) {
  using A = Arith<S>;
  constexpr const char* kWhere = kSsdBackward;
  const std::int64_t places = spec.batch * spec.time,
                     all = spec.batch * spec.heads * spec.state * spec.head_width;
  SsdGradientTensors<S> t;
  t.in = ssd_inputs<S>(spec, in, kWhere);
  t.states = checked<A>(states, all * spec.chunks(), kWhere, "states");
  t.dy = checked<S>(dy, places * spec.heads * spec.head_width, kWhere, "dy");
  t.dlast = checked_or_null<A>(dlast, all, kWhere, "dlast");
  t.dxbc = checked<S>(gradients.xbc, places * spec.xbc_columns(), kWhere, "gradients.xbc");
  t.dprojected = checked<S>(gradients.projected, places * spec.columns, kWhere, "gradients.projected");
  t.da_log = checked_or_null<A>(gradients.a_log, spec.heads, kWhere, "gradients.a_log");
  t.ddt_bias = checked_or_null<A>(gradients.dt_bias, spec.heads, kWhere, "gradients.dt_bias");
  t.dd = checked_or_null<A>(gradients.d, spec.heads, kWhere, "gradients.d");
  t.dinitial = checked_or_null<A>(gradients.initial, all, kWhere, "gradients.initial");
  t.accumulate = gradients.accumulate;
  return t;
}

template <class S, class P>
struct GatedNormTensors {
  const S *y = nullptr, *projected = nullptr;
  const P* weight = nullptr;
  S* out = nullptr;         ///< of forward; may be y
  const S* dout = nullptr;  ///< this and the next of backward
  S *dy = nullptr, *dprojected = nullptr;
  P* dweight = nullptr;
};

template <class S, class P>
GatedNormTensors<S, P> gated_norm_inputs(const GatedNormSpec& spec, const TensorView& y,
                                         const TensorView& projected, const TensorView& weight,
                                         const char* where) {
  const std::int64_t width = spec.groups * spec.group_width;
  GatedNormTensors<S, P> t;
  t.y = checked<S>(y, spec.rows * width, where, "y");
  t.projected = checked<S>(projected, spec.rows * spec.columns, where, "projected");
  t.weight = checked<P>(weight, width, where, "weight");
  return t;
}

template <class S, class P>
GatedNormTensors<S, P> gated_norm_forward(const GatedNormSpec& spec, const TensorView& y,
                                          const TensorView& projected, const TensorView& weight,
                                          const TensorView& out) {
  auto t = gated_norm_inputs<S, P>(spec, y, projected, weight, kGatedNorm);
  t.out = checked<S>(out, spec.rows * spec.groups * spec.group_width, kGatedNorm, "out");
  return t;
}

template <class S, class P>
GatedNormTensors<S, P> gated_norm_backward(const GatedNormSpec& spec, const TensorView& y,
                                           const TensorView& projected, const TensorView& weight,
                                           const TensorView& dout, const TensorView& dy,
                                           const TensorView& dprojected, const TensorView& dweight) {
  constexpr const char* kWhere = kGatedNormBackward;
  const std::int64_t width = spec.groups * spec.group_width;
  auto t = gated_norm_inputs<S, P>(spec, y, projected, weight, kWhere);
  t.dout = checked<S>(dout, spec.rows * width, kWhere, "dout");
  t.dy = checked<S>(dy, spec.rows * width, kWhere, "dy");
  t.dprojected = checked<S>(dprojected, spec.rows * spec.columns, kWhere, "dprojected");
  t.dweight = checked<P>(dweight, width, kWhere, "dweight");
  return t;
}

}  // namespace tenon::device_ssd
