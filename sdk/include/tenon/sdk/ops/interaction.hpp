// Operator family of a device for the interactions of recommendation models. Optional: a device
// offers it to the layers that ask for it. Conventions are those of
// <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

TENON_ABI_BEGIN

/// Ways of joining the dense part z0 [batch, width] of a sample with its vectors z [batch, count, width] in a
/// recommendation model.
enum class Interaction : std::uint8_t {
  kDot = 0,          ///< z0, then t_i . t_j over T = [z0; z], i ascending, then j < i (Naumov et al. 2019)
  kDotItself = 1,    ///< the same for j <= i
  kConcatenate = 2,  ///< z0, then z; z0 alone may have another width
  kSum = 3,          ///< z0 + sum over count of z
};
/// Columns of the result.
constexpr std::int64_t interaction_columns(Interaction kind, std::int64_t z0_width, std::int64_t count,
                                           std::int64_t width) {
  if (kind == Interaction::kDot) return z0_width + (count + 1) * count / 2;
  if (kind == Interaction::kDotItself) return z0_width + (count + 1) * (count + 2) / 2;
  return z0_width + (kind == Interaction::kConcatenate ? count * width : 0);
}

class InteractionOps {
 public:
  static constexpr const char* kId = "tenon.device.interaction/1";
  virtual ~InteractionOps();
  /// y: [batch, columns].
  virtual void interact(Interaction kind, TensorView z0, TensorView z, TensorView y) = 0;
  /// dz0 and dz may be empty; neither overlaps an argument. The elements of z0 and z are read only for the
  /// dot products.
  virtual void interact_backward(Interaction kind, TensorView z0, TensorView z, TensorView dy, TensorView dz0,
                                 bool accumulate_z0, TensorView dz, bool accumulate_z) = 0;
};

TENON_ABI_END
