// Kept modes of a transform, and their multiplicity.
#pragma once

#include <tenon/ops/spectral.hpp>

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

}  // namespace tenon::cpu
