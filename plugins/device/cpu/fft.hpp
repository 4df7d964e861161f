// Shared by the two ways to compute a transform, fft.cpp and fft_direct.cpp: kept modes, their multiplicity,
// and the choice of short transforms.
#pragma once

#include "common.hpp"

#include <tenon/ops/spectral.hpp>

#include <memory>

namespace tenon::cpu {

inline std::int64_t kept_modes(const FftSpec& spec) {
  return spec.low + spec.high;
}
/// Number of kept mode `kept` in the whole spectrum.
inline std::int64_t mode_number(const FftSpec& spec, std::int64_t kept) {
  return kept < spec.low ? kept : spec.length - kept_modes(spec) + kept;
}
/// With real points the imaginary part of such a mode is zero.
inline bool is_own_conjugate(const FftSpec& spec, std::int64_t kept) {
  return spec.real && (kept == 0 || 2 * kept == spec.length);
}
/// Number of terms of a kept mode in a sum over the whole spectrum: the mode itself, and its conjugate where
/// that is another mode.
inline double mode_terms(const FftSpec& spec, std::int64_t kept) {
  return spec.real && !is_own_conjugate(spec, kept) ? 2 : 1;
}

// Short transforms in float32 as products with the matrix of their kept modes: for a few modes of a few
// points that is less work than a whole transform. Used by the family Fft.

/// Whether make_direct_fft computes this one: by its points, kept modes and number format alone.
bool is_direct(const FftSpec& spec);
std::unique_ptr<FftKernel> make_direct_fft(const Kernels& kernels, const FftSpec& spec);

}  // namespace tenon::cpu
