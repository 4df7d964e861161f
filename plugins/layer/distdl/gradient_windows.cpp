// Converts the outputs that read a shard of x to the window that adds their gradients up.
#include "gradient_windows.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::distdl {
namespace {

/// x's sharding of samples and space, y's of the features.
Layout read_by(const Layout& x, const Layout& y) {
  Layout layout = x;
  layout.shape[1] = y.shape[1];
  std::erase_if(layout.sharding, [](const DimSharding& cut) { return cut.dim == 1; });
  for (const DimSharding& cut : y.sharding)
    if (cut.dim == 1) layout.sharding.push_back(cut);
  return layout;
}

}  // namespace

GradientWindows::GradientWindows(InferContext& context, const SlidingWindows& windows, const Layout& x,
                                 const Layout& y, DType dtype) {
  MoveSpec move{.from = y, .to = read_by(x, y), .dtype = dtype};
  move.windows = {nullptr, nullptr};
  move.device = &context.device();
  for (int d = 0; d < windows.spatial(); ++d)
    move.windows.push_back(sliding_gradient_map(windows.sliding(d), y.shape[d + 2]));
  exchange_ = make_map(context.grid(), "halo_exchange", move,
                       fmt::format("layer '{}': what the gradient of x reads", context.name()));
  const Box own = part_of(move.to, context.grid().place()), made = part_of(y, context.grid().place());
  rows_.spatial = windows.spatial();
  fold_ = windows.global();
  for (int d = 0; d < windows.spatial(); ++d) {
    const int dim = d + 2;
    const Sliding window = windows.sliding(d);
    const ElementRange read =
        dim_window(move.windows[static_cast<std::size_t>(dim)].get(), {made.offset[dim], made.end(dim)},
                   {own.offset[dim], own.end(dim)}, y.shape[dim])
            .wanted;
    rows_.extent[d] = read.size();
    fold_.extent[d] = own.extents[dim];
    // Distance from the first window's begin to the first element: negative where a gap between windows puts
    // the begin after it.
    fold_.pad_low[d] = own.offset[dim] + window.pad_low - window.stride * read.begin;
    const std::int64_t reach =
        window.dilation * (window.kernel - 1) + 1 + window.stride * (rows_.places(d) - 1);
    fold_.pad_high[d] = std::max<std::int64_t>(0, reach - fold_.extent[d] - fold_.pad_low[d]);
  }
}

}  // namespace tenon::distdl
