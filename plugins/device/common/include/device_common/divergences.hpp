// Arguments of divergences and of distances between states (families DivergenceOps, StateDistanceOps): the
// tensors of a call as pointers, and what a spec may be. Does not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/divergence.hpp>
#include <tenon/sdk/ops/divergence.hpp>

namespace tenon::device_arguments {

template <class A>
kernels::DivergenceArgs<A> divergence(const DivergenceSpec& spec, const TensorView& student,
                                      const TensorView& teacher, const TensorView& targets,
                                      const TensorView& statistics, const char* where) {
  const auto [rows, columns] = as_matrix(student);
  if (!(spec.temperature > 0))
    refuse(where, "the temperature is " + std::to_string(spec.temperature) + ", expected more than 0");
  kernels::DivergenceArgs<A> args;
  if (spec.form == Divergence::kTopK) {
    if (spec.top_k < 1) refuse(where, "top_k is " + std::to_string(spec.top_k) + ", expected at least 1");
    if (columns > std::int64_t{1} << 24)
      refuse(where, "top_k works on at most 16777216 columns, found " + std::to_string(columns));
    if (spec.top_k < columns) args.top_k = spec.top_k;
  }
  static_assert(kernels::kDivergenceStatistics == kDivergenceStatistics);
  args.reverse = spec.form == Divergence::kReverse;
  args.rows = rows, args.columns = columns;
  args.inverse_temperature = static_cast<A>(1 / spec.temperature);
  args.student = checked<A>(student, rows * columns, where, "student");
  args.teacher = checked<A>(teacher, rows * columns, where, "teacher");
  args.targets = checked<std::int32_t>(targets, rows, where, "targets");
  args.statistics = checked<A>(statistics, rows * kDivergenceStatistics, where, "statistics");
  return args;
}

template <class S>
struct DistanceTensors {
  std::int64_t rows = 0, columns = 0;
  const S *student = nullptr, *teacher = nullptr;
  kernels::Arith<S>* statistics = nullptr;
};

template <class S>
DistanceTensors<S> distance(const TensorView& student, const TensorView& teacher,
                            const TensorView& statistics, const char* where) {
  const auto [rows, columns] = as_matrix(student);
  DistanceTensors<S> of;
  of.rows = rows, of.columns = columns;
  of.student = checked<S>(student, rows * columns, where, "student");
  of.teacher = checked<S>(teacher, rows * columns, where, "teacher");
  of.statistics = checked<kernels::Arith<S>>(statistics, rows * kDistanceStatistics, where, "statistics");
  return of;
}

inline kernels::Distance distance_form(StateDistance form) {
  return static_cast<kernels::Distance>(form);
}

}  // namespace tenon::device_arguments
