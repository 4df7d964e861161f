// Arguments of interactions of vectors (family InteractionOps): sizes that belong together, and the tensors
// of a call as pointers. Does not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/interaction.hpp>
#include <tenon/sdk/ops/interaction.hpp>

namespace tenon::device_arguments {

/// z0 [batch, first], z [batch, count, width]
struct InteractionSizes {
  std::int64_t batch = 0, first = 0, count = 0, width = 0;
  std::int64_t columns(Interaction kind) const { return interaction_columns(kind, first, count, width); }
};

inline InteractionSizes interaction_sizes(Interaction kind, const TensorView& z0, const TensorView& z,
                                          const char* where) {
  const bool ranks = z0.shape.rank() == 2 && z.shape.rank() == 3;
  if (ranks && z0.shape[0] == z.shape[0] && (z0.shape[1] == z.shape[2] || kind == Interaction::kConcatenate))
    return {z.shape[0], z0.shape[1], z.shape[1], z.shape[2]};
  refuse(where, "expected z0 [batch, width] and z [batch, count, width], found " + z0.shape.text() + " and " +
                    z.shape.text());
}

inline bool is_dot(Interaction kind) {
  return kind == Interaction::kDot || kind == Interaction::kDotItself;
}

/// The tensors of a call in the arguments of the dot-product kernels, for all kinds.
template <class S>
struct InteractionCall {
  InteractionCall(Interaction kind, const TensorView& z0, const TensorView& z, const char* where)
      : sizes(interaction_sizes(kind, z0, z, where)) {
    args.vectors = sizes.count + 1;
    args.width = sizes.width;
    args.columns = sizes.columns(kind);
    args.itself = kind == Interaction::kDotItself;
  }

  InteractionSizes sizes;
  kernels::InteractionArgs<S> args;
};

template <class S>
InteractionCall<S> interaction(Interaction kind, const TensorView& z0, const TensorView& z,
                               const TensorView& y, const char* where) {
  InteractionCall<S> call(kind, z0, z, where);
  call.args.z0 = checked<S>(z0, z0.elements(), where, "z0");
  call.args.z = checked<S>(z, z.elements(), where, "z");
  call.args.y = checked<S>(y, call.sizes.batch * call.args.columns, where, "y");
  return call;
}

/// The tensors of its backward; dz0 and dz may be absent.
struct InteractionGradient {
  const TensorView &z0, &z, &dy, &dz0;
  bool accumulate_z0;
  const TensorView& dz;
  bool accumulate_z;
};
/// Kinds without dot products do not read z0 and z, which stay null.
template <class S>
InteractionCall<S> interaction_backward(Interaction kind, const InteractionGradient& of, const char* where) {
  InteractionCall<S> call(kind, of.z0, of.z, where);
  auto& args = call.args;
  args.dy = checked<S>(of.dy, call.sizes.batch * args.columns, where, "dy");
  args.dz0 = checked_or_null<S>(of.dz0, of.z0.elements(), where, "dz0");
  args.dz = checked_or_null<S>(of.dz, of.z.elements(), where, "dz");
  args.accumulate_z0 = of.accumulate_z0;
  args.accumulate_z = of.accumulate_z;
  if (!is_dot(kind)) return call;
  args.z0 = checked<S>(of.z0, of.z0.elements(), where, "z0");
  args.z = checked<S>(of.z, of.z.elements(), where, "z");
  return call;
}

}  // namespace tenon::device_arguments
