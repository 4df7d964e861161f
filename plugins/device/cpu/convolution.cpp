// Convolutions from images (family Convolutions): oneDNN's, for f32 where its loops beat windows and
// products. The sum over a channel is in f64 over its samples, each of whose points are added 16 side by side
// in f32.
#include "families.hpp"
#ifndef TENON_PORTABLE_THREADS
#include "convolution_onednn.hpp"
#endif

#include <fmt/format.h>

namespace tenon::cpu {
namespace {

#ifndef TENON_PORTABLE_THREADS
/// Windows that slide within zeros, over something.
bool is_ordinary(const ConvolutionSpec& spec) {
  const WindowSpec& window = spec.window;
  if (spec.batch < 1 || spec.channels < 1 || spec.features < 1 || window.places() < 1) return false;
  for (int d = 0; d < window.spatial; ++d)
    if (window.pad_low[d] < 0 || window.pad_high[d] < 0) return false;
  return true;
}
#endif

float sum_of(const float* values, std::int64_t count) {
  constexpr std::int64_t kChains = 16;
  float sums[kChains] = {};
  std::int64_t i = 0;
  for (; i + kChains <= count; i += kChains)
    for (std::int64_t chain = 0; chain < kChains; ++chain) sums[chain] += values[i + chain];
  for (std::int64_t chain = 0; i < count; ++i, ++chain) sums[chain] += values[i];
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

class CpuConvolutions final : public Convolutions {
 public:
  explicit CpuConvolutions(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<Convolution> prepare(const ConvolutionSpec& spec) override {
    if (spec.window.spatial < 1 || spec.window.spatial > 3) {
      fail_config(
          fmt::format("device cpu: convolutions have 1 to 3 dimensions, found {}", spec.window.spatial));
    }
#ifndef TENON_PORTABLE_THREADS
    if (kernels_.onednn && spec.dtype == DType::kF32 && is_ordinary(spec))
      return make_onednn_convolution(kernels_, spec);
#endif
    return nullptr;
  }

  void sum_channels(TensorView y, TensorView sums, bool accumulate) override {
    constexpr const char* kWhere = "sum_channels";
    const std::int64_t channels = sums.elements(), batch = y.shape.rank() < 2 ? 0 : y.shape[0];
    const std::int64_t planes = batch * channels, points = planes == 0 ? 0 : y.elements() / planes;
    const auto* from = checked<float>(y, planes * points, kWhere, "y");
    auto* to = checked<float>(sums, channels, kWhere, "sums");
    parallel_for(channels, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        double total = accumulate ? to[c] : 0.0;
        for (std::int64_t b = 0; b < batch; ++b) total += sum_of(from + (b * channels + c) * points, points);
        to[c] = static_cast<float>(total);
      }
    });
  }

 private:
  [[maybe_unused]] Kernels kernels_;  // a build without oneDNN has no use for it
};

}  // namespace

std::unique_ptr<Convolutions> make_convolutions(const Kernels& kernels) {
  return std::make_unique<CpuConvolutions>(kernels);
}

}  // namespace tenon::cpu
