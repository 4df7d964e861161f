// Quotient and remainder of indices. Devices divide 32-bit words several times faster than 64-bit ones, and
// few tensors need more.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels::cuda {

struct Divided {
  std::int64_t quotient, remainder;
};

/// n and d are not negative, d is not 0.
TENON_BOTH inline Divided divided(std::int64_t n, std::int64_t d) {
  if (((n | d) >> 32) != 0) return {n / d, n % d};
  const auto top = static_cast<std::uint32_t>(n), bottom = static_cast<std::uint32_t>(d);
  return {top / bottom, top % bottom};
}

}  // namespace tenon::kernels::cuda
