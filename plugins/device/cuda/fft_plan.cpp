#include "fft_plan.hpp"

#include "queue.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace tenon::cuda {

void check_fft(const FftSpec& spec) {
  constexpr int kMostPoints = std::numeric_limits<int>::max();
  if (spec.length < 1 || spec.length > kMostPoints || spec.outer < 0 || spec.inner < 0) {
    fail_config(fmt::format("device {}: fft: expected lines of 1 to {} points, found [{}, {}, {}]",
                            kDeviceName, kMostPoints, spec.outer, spec.length, spec.inner));
  }
  const std::int64_t most = spec.real ? spec.length / 2 + 1 : spec.length;
  if (spec.low < 0 || spec.high < 0 || spec.low + spec.high > most || (spec.real && spec.high > 0)) {
    fail_config(
        fmt::format("device {}: fft: {} {} points have {} modes{}, found {} low and {} high ones to "
                    "keep",
                    kDeviceName, spec.length, spec.real ? "real" : "complex", most,
                    spec.real ? ", all of them low" : "", spec.low, spec.high));
  }
  const bool reals = spec.points == DType::kF32 || spec.points == DType::kF64 || spec.points == DType::kBF16;
  if (spec.real ? !reals : !dtype_is_complex(spec.points)) {
    fail_config(fmt::format("device {}: fft: expected {} points, found {}", kDeviceName,
                            spec.real ? "real f32, f64 or bf16" : "complex c64 or c128",
                            dtype_name(spec.points)));
  }
}

std::vector<double> fft_waves(std::int64_t length) {
  std::vector<double> waves;
  waves.reserve(static_cast<std::size_t>(2 * length));
  for (std::int64_t n = 0; n < length; ++n) {
    const double angle = 2 * 3.14159265358979323846 * static_cast<double>(n) / static_cast<double>(length);
    waves.push_back(std::cos(angle));
    waves.push_back(std::sin(angle));
  }
  return waves;
}

}  // namespace tenon::cuda
