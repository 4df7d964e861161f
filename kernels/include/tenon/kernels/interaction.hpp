// Dot products of all pairs among the vectors t_0 ... t_(n-1) of a sample, t_0 being z0 and the others z
// (Naumov et al. 2019). A sample's row of y is t_0 followed by t_i . t_j for i ascending, then j < i, or j <=
// i with `itself`. Every dot product and every element of a gradient is one chain in Arith<S>, rounded once;
// samples are independent, so callers may split them in any way.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// z0: [samples, width], z: [samples, vectors - 1, width], y and dy: [samples, columns].
/// columns = width + vectors (vectors - 1) / 2, and `vectors` more with `itself`.
template <class S>
struct InteractionArgs {
  std::int64_t vectors = 0, width = 0, columns = 0;
  bool itself = false;
  const S* z0 = nullptr;
  const S* z = nullptr;
  S* y = nullptr;
  /// Backward: dt_i = sum over j of g_ij t_j in ascending j, where g_ij is the gradient of t_i . t_j, twice
  /// that for i = j; that of t_0 begins with the first `width` elements of dy. dz0 and dz may be null.
  const S* dy = nullptr;
  S* dz0 = nullptr;
  S* dz = nullptr;
  bool accumulate_z0 = false, accumulate_z = false;
};

template <class S>
struct InteractionOps {
  void (*forward)(const InteractionArgs<S>&, std::int64_t sample_begin, std::int64_t sample_end);
  void (*backward)(const InteractionArgs<S>&, std::int64_t sample_begin, std::int64_t sample_end);
};

}  // namespace tenon::kernels
