// Transforms of whole lines by cuFFT, which is opened at run time: for lines whose matrix of kept modes
// (fft.cpp) would be more work. Plain sums replace the library when emulated.
#pragma once

#include "queue.hpp"

#include <tenon/ops/spectral.hpp>

#include <memory>
#include <string>

namespace tenon::cuda {

/// Transforms of `count` lines of `length` points, packed one after another, unscaled. Real points have
/// spectra of length / 2 + 1 modes.
struct LinePlanSpec {
  std::int64_t length = 1, count = 1;
  bool to_modes = true, real = false, doubles = false;
};

class LinePlan {
 public:
  virtual ~LinePlan() = default;
  /// Runs on the queue's stream. `from` and `to` are different memory, aligned to 16 bytes; transforms to
  /// real points overwrite `from`.
  virtual void run(void* from, void* to) = 0;
};

/// Null, and why, where the library is absent or has no such plan. fft_cufft.cpp, fft_emulated.cpp
std::unique_ptr<LinePlan> make_line_plan(Queue& queue, const LinePlanSpec& spec, std::string& reason);

/// Whether whole transforms are less work than products with the matrix: by length and kept modes alone.
constexpr bool wants_library(const FftSpec& spec) {
  constexpr std::int64_t kMostDirect = std::int64_t{1} << 15;
  return spec.low + spec.high > 0 && spec.length > kMostDirect / (spec.low + spec.high);
}

/// For a checked spec. Null, and why, where there is no plan.
std::unique_ptr<FftKernel> make_library_fft(Queue& queue, const FftSpec& spec, std::string& reason);

}  // namespace tenon::cuda
