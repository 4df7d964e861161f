// Storage types of the kernels and the arithmetic type of each.
// Used by every header of this folder. Holds no functions: files compiled for one instruction set include it,
// and an inline function with external linkage there could replace the portable copy at link time.
#pragma once

#include <cstddef>
#include <cstdint>

/// Before a function that is written once and compiled for the host and for CUDA devices.
#if defined(__CUDACC__)
#define TENON_BOTH __host__ __device__
#else
#define TENON_BOTH
#endif

namespace tenon::kernels {

/// bfloat16: the upper half of an IEEE binary32. Storage only; arithmetic is done in float.
struct Bf16 {
  std::uint16_t bits;
};

template <class S>
struct ArithOf {
  using type = S;
};
template <>
struct ArithOf<Bf16> {
  using type = float;
};
/// Type in which kernels compute on storage type S, and in which they keep statistics and sums.
template <class S>
using Arith = typename ArithOf<S>::type;

/// Number of float lanes that every vector kernel works in, whatever the register width; hence equal bits on
/// AVX2 and AVX-512.
inline constexpr int kLanes = 16;

}  // namespace tenon::kernels
