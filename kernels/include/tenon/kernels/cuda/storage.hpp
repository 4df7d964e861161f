// Reading and writing elements in kernel bodies: one element of a storage type in its arithmetic type, and
// runs of neighbouring elements.
#pragma once

#include <tenon/kernels/bf16.hpp>
#include <tenon/kernels/cuda/block.hpp>

namespace tenon::kernels::cuda {

TENON_BOTH inline float get(float x) {
  return x;
}
TENON_BOTH inline double get(double x) {
  return x;
}
TENON_BOTH inline float get(Bf16 x) {
  return to_float(x);
}

/// Rounded once, to nearest.
template <class S>
TENON_BOTH S put(Arith<S> x) {
  if constexpr (sizeof(S) == sizeof(Bf16)) {
    return to_bf16(x);
  } else {
    return x;
  }
}

// Runs of neighbouring elements that one thread moves at once in kernel bodies: by one access of up to 16
// bytes where the address allows it, else one by one.

template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Run {
  T at[N];
};

template <class T, int N>
TENON_BOTH bool fits_run(const T* address) {
  return reinterpret_cast<std::uintptr_t>(address) % alignof(Run<T, N>) == 0;
}

/// The first n of N elements; zeros follow.
template <int N, class T>
TENON_BOTH Run<T, N> load_run(const T* from, int n) {
  if (n == N && fits_run<T, N>(from)) return *reinterpret_cast<const Run<T, N>*>(from);
  Run<T, N> run = {};
  TENON_UNROLL
  for (int e = 0; e < N; ++e)
    if (e < n) run.at[e] = from[e];
  return run;
}

template <int N, class T>
TENON_BOTH void store_run(T* to, const Run<T, N>& run, int n) {
  if (n == N && fits_run<T, N>(to)) {
    *reinterpret_cast<Run<T, N>*>(to) = run;
    return;
  }
  TENON_UNROLL
  for (int e = 0; e < N; ++e)
    if (e < n) to[e] = run.at[e];
}

/// Number of the `run` elements from `at` on that are before `end`.
TENON_BOTH inline int left_of(std::int64_t end, std::int64_t at, int run) {
  return end - at >= run ? run : end > at ? static_cast<int>(end - at) : 0;
}

}  // namespace tenon::kernels::cuda
