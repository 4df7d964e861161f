// Check of the spec of a Fourier transform (family Fft). Does not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/ops/spectral.hpp>

#include <limits>
#include <string>

namespace tenon::device_arguments {

/// Refuses lines and modes that do not exist, and points of other types than the contract's.
inline void check_fft(const FftSpec& spec) {
  constexpr int kMostPoints = std::numeric_limits<int>::max();
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  if (spec.length < 1 || spec.length > kMostPoints || spec.outer < 0 || spec.inner < 0) {
    refuse_config("fft: expected lines of 1 to " + text(kMostPoints) + " points, found [" + text(spec.outer) +
                  ", " + text(spec.length) + ", " + text(spec.inner) + "]");
  }
  const std::int64_t most = spec.real ? spec.length / 2 + 1 : spec.length;
  if (spec.low < 0 || spec.high < 0 || spec.low + spec.high > most || (spec.real && spec.high > 0)) {
    refuse_config("fft: " + text(spec.length) + (spec.real ? " real" : " complex") + " points have " +
                  text(most) + " modes" + (spec.real ? ", all of them low" : "") + ", found " +
                  text(spec.low) + " low and " + text(spec.high) + " high ones to keep");
  }
  const bool reals = spec.points == DType::kF32 || spec.points == DType::kF64 || spec.points == DType::kBF16;
  if (spec.real ? !reals : !dtype_is_complex(spec.points)) {
    refuse_config(std::string("fft: expected ") +
                  (spec.real ? "real f32, f64 or bf16" : "complex c64 or c128") + " points, found " +
                  std::string(dtype_name(spec.points)));
  }
}

}  // namespace tenon::device_arguments
