// Products of complex matrices, one per mode of a spectrum (Li et al. 2021, the kernel of a Fourier layer):
// y[b, o, m] = sum over i of x[b, i, m] w[i, o, m]. Modes are contiguous, so the vector lanes hold modes. A
// sum adds its terms in ascending order, each being two products for the real and for the imaginary part:
// equal bits whichever modes share a call. Callers may split the groups of modes in any way.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// Modes of one group.
inline constexpr std::int64_t kModeGroup = kLanes;

/// x, dx: [batch, in, modes], y, dy: [batch, out, modes], w, dw: [in, out, modes]; two reals each.
template <class T>
struct BatchedComplexGemmArgs {
  std::int64_t batch = 0, in = 0, out = 0, modes = 0;
  const T* x = nullptr;
  const T* w = nullptr;
  T* y = nullptr;
  const T* dy = nullptr;
  T* dx = nullptr;
  T* dw = nullptr;
  bool accumulate_dw = false;
  T* workspace = nullptr;  ///< of this caller alone
};

template <class T>
struct BatchedComplexGemmOps {
  /// Elements of a workspace.
  std::int64_t (*workspace)(const BatchedComplexGemmArgs<T>&);
  void (*forward)(const BatchedComplexGemmArgs<T>&, std::int64_t group_begin, std::int64_t group_end);
  /// dx[b, i, m] = sum over o of dy[b, o, m] conj(w[i, o, m])
  void (*backward_input)(const BatchedComplexGemmArgs<T>&, std::int64_t group_begin, std::int64_t group_end);
  /// dw[i, o, m] (+)= sum over b of conj(x[b, i, m]) dy[b, o, m]
  void (*backward_weight)(const BatchedComplexGemmArgs<T>&, std::int64_t group_begin, std::int64_t group_end);
};

}  // namespace tenon::kernels
