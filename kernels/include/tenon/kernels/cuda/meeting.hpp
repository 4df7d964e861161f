// Integers that threads of several blocks raise, lower or add to. The result does not depend on the order in
// which they arrive, which is why there are no such functions for floating point.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels::cuda {

/// *place becomes the larger of the two. Most calls find it large enough already.
TENON_BOTH inline void raise(std::uint32_t* place, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  if (*static_cast<volatile std::uint32_t*>(place) < value) atomicMax(place, value);
#else
  if (*place < value) *place = value;
#endif
}

/// *place becomes the smaller of the two.
TENON_BOTH inline void lower(std::uint32_t* place, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  if (*static_cast<volatile std::uint32_t*>(place) > value) atomicMin(place, value);
#else
  if (*place > value) *place = value;
#endif
}

TENON_BOTH inline void add_to(std::int64_t* place, std::int64_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(value));
#else
  *place += value;
#endif
}

}  // namespace tenon::kernels::cuda
