// Arguments of interactions of vectors (family InteractionOps): sizes that belong together, and the arguments
// of the dot-product kernels. Does not use fmt, which nvcc does not accept.
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

template <class S>
kernels::InteractionArgs<S> dot_args(Interaction kind, const InteractionSizes& sizes, const S* z0,
                                     const S* z) {
  kernels::InteractionArgs<S> args;
  args.vectors = sizes.count + 1;
  args.width = sizes.width;
  args.columns = sizes.columns(kind);
  args.itself = kind == Interaction::kDotItself;
  args.z0 = z0;
  args.z = z;
  return args;
}

}  // namespace tenon::device_arguments
