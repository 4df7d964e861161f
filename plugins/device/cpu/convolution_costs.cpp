// The costs of a convolution's products by oneDNN and by the kernels of this tree. The model knows shapes
// alone, so a plan is the same on each run.
#include "convolution.hpp"

#include <array>

namespace tenon::cpu {
namespace {

/// Nanoseconds per thousand of each quantity of a product. `more`: per term of the shapes that a side is slow
/// at, windows of one element for the kernels, images of few channels for the library.
struct Costs {
  double terms, more, moved, weights;
};
struct SideCosts {
  Costs kernels, library;
};

// Fitted to what `bench/convolutions --threads 1 --rounds 7 --isa SET` prints (2026-11-29, AMD EPYC with
// AVX-512, oneDNN 2.6.3): least squares of relative errors over its 20 shapes.
constexpr std::array<SideCosts, kConvolutionProducts> kAvx2Costs = {
    {{{19.97, 2.452, 223.5, 5233}, {19.41, 10.31, 649.6, 6130}},
     {{19.78, 0.777, 445.5, 7463}, {17.87, 6.190, 706.4, 11800}},
     {{22.83, 11.65, 272.6, 12780}, {21.08, 0, 721.9, 12530}}}};
constexpr std::array<SideCosts, kConvolutionProducts> kAvx512Costs = {
    {{{18.77, 3.751, 175.8, 3796}, {17.68, 5.170, 657.1, 1456}},
     {{18.03, 4.467, 383.4, 5527}, {17.35, 0.981, 777.0, 2275}},
     {{22.10, 8.675, 225.8, 1995}, {18.85, 1.299, 543.5, 13770}}}};

std::int64_t whole(std::int64_t count, std::int64_t lanes) {
  return (count + lanes - 1) / lanes * lanes;
}

/// Pairs of a place and an offset of the window, along one dimension, that are inside the image.
std::int64_t inside(const WindowSpec& window, int dim) {
  std::int64_t count = 0;
  for (std::int64_t place = 0; place < window.places(dim); ++place)
    for (std::int64_t offset = 0; offset < window.kernel[dim]; ++offset) {
      const std::int64_t at =
          place * window.stride[dim] - window.pad_low[dim] + offset * window.dilation[dim];
      count += at >= 0 && at < window.extent[dim] ? 1 : 0;
    }
  return count;
}

double of(const Costs& costs, double terms, bool more, double moved, double weights) {
  return costs.terms * terms + (more ? costs.more * terms : 0.0) + costs.moved * moved +
         costs.weights * weights;
}

}  // namespace

bool kernels_are_faster(const ConvolutionSpec& spec, int product, bool avx512) {
  const SideCosts& costs = (avx512 ? kAvx512Costs : kAvx2Costs)[static_cast<std::size_t>(product)];
  const WindowSpec& window = spec.window;
  const bool input = product == kConvolutionInput;
  const std::int64_t lanes = avx512 ? 16 : 8, group = product == kConvolutionWeight ? 16 : lanes;
  const auto real = [](std::int64_t count) { return static_cast<double>(count); };
  // The kernels' lanes are points, and padding is computed; where rows are no multiple of them, the source is
  // copied once for each column of the window. dx of strided windows is one grid of points per remainder.
  std::int64_t points = 1, columns = 1;
  for (int d = 0; d < 2; ++d) {
    const std::int64_t extent =
        input ? (window.extent[d] + window.stride[d] - 1) / window.stride[d] : window.places(d);
    points *= extent;
    columns = extent;
  }
  const std::int64_t pairs = spec.channels * spec.features, x = spec.channels * window.elements(),
                     y = spec.features * window.places();
  const std::int64_t copies = columns % group == 0 ? 1 : window.kernel[1];
  const double kernel_terms = real(spec.batch * whole(points, group)) * real(pairs * window.offsets()),
               weights = real(pairs * window.offsets());
  const double kernel_moved = real(spec.batch * (input ? y * copies + x : x * copies + y));
  // The library's lanes are channels of the result, or features of dw, and it skips padding.
  const std::int64_t filled =
      input ? whole(spec.channels, lanes) * spec.features : spec.channels * whole(spec.features, lanes);
  const double library_terms = real(spec.batch * inside(window, 0) * inside(window, 1)) * real(filled);
  constexpr std::int64_t kFewChannels = 8;
  return of(costs.kernels, kernel_terms, window.offsets() == 1, kernel_moved, weights) <
         of(costs.library, library_terms, spec.channels < kFewChannels, real(spec.batch * (x + y)), weights);
}

}  // namespace tenon::cpu
