// Convolutions of planes in f32: y = w * x + bias over windows that slide within zero padding, and the
// gradients of x and w. Every element of y and dx is one chain of fused multiply-adds over channels (of dx:
// features), then offsets of the window in ascending order; padding counts as a term of zero. An element of
// dw is the sum over groups, of the sums over regions, of the 16 lanes' chains over a region's points. So all
// vector sets with fused multiply-adds produce the same bits, and callers may split the items in any way.
#pragma once

#include <tenon/kernels/window.hpp>

namespace tenon::kernels {

/// Offsets of the largest window, and the largest stride.
inline constexpr std::int64_t kConvolutionOffsets = 64, kConvolutionStride = 2;

struct ConvolutionArgs {
  Window window;  ///< of two dimensions: the leading extent is 1; pads are not negative
  std::int64_t batch = 0, channels = 0, features = 0;
  const float* x = nullptr;     ///< [batch, channels, in]
  const float* w = nullptr;     ///< [features, channels, offsets]
  const float* bias = nullptr;  ///< [features], or null
  float* y = nullptr;           ///< [batch, features, places]
  const float* dy = nullptr;
  float* dx = nullptr;
  float* dw = nullptr;
  bool accumulate = false;  ///< onto dx: the chain begins with the old value; onto dw: the sum is added to it
};

/// Points [0, rows x columns) of each of so many samples, in order: bands of rows of one sample, or whole
/// samples.
struct ConvolutionRegions {
  std::int64_t samples = 1, rows = 1;  ///< of one region, but the last ones
  std::int64_t bands = 1, count = 0;   ///< bands of a sample; regions in all
};
constexpr ConvolutionRegions convolution_regions(std::int64_t batch, std::int64_t rows, std::int64_t columns,
                                                 std::int64_t most_points) {
  ConvolutionRegions r;
  const std::int64_t points = rows * columns;
  if (batch < 1 || points < 1) return r;
  if (points <= most_points) {
    r.samples = most_points / points < batch ? most_points / points : batch;
    r.rows = rows;
  } else {
    const std::int64_t most = most_points / columns < 1 ? 1 : most_points / columns;
    r.bands = (rows + most - 1) / most;
    r.rows = (rows + r.bands - 1) / r.bands;
    r.bands = (rows + r.rows - 1) / r.rows;
  }
  r.count = (batch + r.samples - 1) / r.samples * r.bands;
  return r;
}

/// Shares of a weight gradient: blocks of channels, each with groups of consecutive regions of places. Group
/// g has regions [g count / groups, (g + 1) count / groups).
struct ConvolutionWeightShares {
  ConvolutionRegions regions;
  std::int64_t channels = 1, blocks = 1, groups = 1;
};
constexpr ConvolutionWeightShares convolution_weight_shares(const ConvolutionArgs& args) {
  constexpr std::int64_t kPoints = 1024, kColumns = 144, kChannels = 32, kItems = 16;
  ConvolutionWeightShares s;
  s.regions = convolution_regions(args.batch, args.window.out[1], args.window.out[2], kPoints);
  const std::int64_t offsets = args.window.kernel[1] * args.window.kernel[2];
  s.channels = offsets * kChannels <= kColumns ? kChannels : offsets < kColumns ? kColumns / offsets : 1;
  s.channels = args.channels < s.channels ? args.channels : s.channels;
  s.blocks = s.channels < 1 ? 0 : (args.channels + s.channels - 1) / s.channels;
  s.groups = s.blocks < 1 ? 1 : (kItems + s.blocks - 1) / s.blocks;
  s.groups = s.groups < s.regions.count ? s.groups : s.regions.count;
  s.groups = s.groups < 1 ? 1 : s.groups;
  return s;
}

/// One of the three products. prepare() over all its items comes first, then run() over all of its items,
/// then finish() over all of its items; each may be shared among callers, which wait for one another between
/// them. `shared` is memory of all callers, `workspace` of each.
struct ConvolutionPass {
  std::int64_t (*shared)(const ConvolutionArgs&);     ///< floats
  std::int64_t (*workspace)(const ConvolutionArgs&);  ///< floats
  std::int64_t (*prepare_items)(const ConvolutionArgs&);
  void (*prepare)(const ConvolutionArgs&, std::int64_t begin, std::int64_t end, float* shared);
  std::int64_t (*items)(const ConvolutionArgs&);
  void (*run)(const ConvolutionArgs&, std::int64_t begin, std::int64_t end, float* shared, float* workspace);
  std::int64_t (*finish_items)(const ConvolutionArgs&);
  void (*finish)(const ConvolutionArgs&, std::int64_t begin, std::int64_t end, float* shared);
};

struct ConvolutionOps {
  ConvolutionPass forward, backward_input, backward_weight;
};

}  // namespace tenon::kernels
