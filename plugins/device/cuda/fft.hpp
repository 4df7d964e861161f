// Transforms of whole lines by cuFFT, which is opened at run time: for lines whose matrix of kept modes
// (fft.cpp) would be more work. Plain sums replace the library when emulated. Alone, because each build has
// its own source of plans.
#pragma once

#include "queue.hpp"

#include <memory>
#include <string>
#include <vector>

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

/// cos and sin of 2 pi n / length for every n, computed on the host in double.
std::vector<double> fft_waves(std::int64_t length);

}  // namespace tenon::cuda
