// Windows over shards, from options and the layout of x.
#include "windows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace tenon::distdl {

// Makes the exchange and the sliding window from options and the layout of x.

void SlidingWindows::infer(InferContext& context, const Options& options, const ValueSpec& x) {
  expect_planes(context, x.layout);
  boxes_ = boxes_of(context.device());
  const Shape& inputs = x.layout.shape;
  window_.spatial = global_.spatial = inputs.rank() - 2;
  std::vector<Halo::Reach> reaches;
  for (int d = 0; d < spatial(); ++d) {
    const Sliding one = sliding_for(context, options, d, spatial());
    const std::int64_t outputs = one.outputs(inputs[d + 2]);
    if (outputs == 0) {
      refuse(context,
             fmt::format("a kernel of {} with dilation {} spans {} elements, more than the {} of x {} along "
                         "dimension {} with padding {} on both sides",
                         one.kernel, one.dilation, one.dilation * (one.kernel - 1) + 1, inputs[d + 2],
                         inputs.text(), d + 2, one.pad_low));
    }
    reaches.push_back({sliding_map(one), outputs});
    global_.extent[d] = inputs[d + 2];
    window_.kernel[d] = global_.kernel[d] = one.kernel, window_.stride[d] = global_.stride[d] = one.stride;
    window_.dilation[d] = global_.dilation[d] = one.dilation;
    global_.pad_low[d] = global_.pad_high[d] = one.pad_low;
  }
  halo_.infer(context, x, reaches);
  for (int d = 0; d < spatial(); ++d) window_.extent[d] = halo_.read(d).wanted.size();
}

Sliding SlidingWindows::sliding(int dim) const {
  return {global_.kernel[dim], global_.stride[dim], global_.dilation[dim], global_.pad_low[dim],
          global_.pad_high[dim]};
}

bool SlidingWindows::sharded_in_space() const {
  const Layout outputs = output_layout(1);
  return std::any_of(outputs.sharding.begin(), outputs.sharding.end(), [](const DimSharding& sharding) {
    return sharding.dim >= 2 && sharding.offsets.size() > 2;
  });
}

void SlidingWindows::fetch(TensorView x, TensorView window, Pads pads) {
  halo_.fetch(x, window);
  bool padded = false;
  for (int d = 0; d < spatial(); ++d) padded |= halo_.read(d).pad_low + halo_.read(d).pad_high > 0;
  if (pads == Pads::kLowest && padded) lower_pads(window);
}

void SlidingWindows::lower_pads(TensorView window) const {
  const Shape& shape = window.shape;
  const auto outside = [&](std::int64_t position) {
    for (int dim = shape.rank() - 1; dim >= 2; --dim) {
      const DimWindow& at = halo_.read(dim - 2);
      const std::int64_t index = position % shape[dim];
      if (index < at.pad_low || index >= at.pad_low + at.need.size()) return true;
      position /= shape[dim];
    }
    return false;
  };
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  for (int dim = 2; dim < shape.rank() && boxes_ != nullptr; ++dim) {
    const DimWindow& at = halo_.read(dim - 2);
    const ElementRange beyond[] = {{0, at.pad_low}, {at.pad_low + at.need.size(), shape[dim]}};
    for (const ElementRange& pads : beyond) {
      Box slab{shape, shape};
      for (int d = 0; d < shape.rank(); ++d) slab.offset[d] = 0;
      slab.offset[dim] = pads.begin, slab.extents[dim] = pads.size();
      boxes_->fill(window, slab, kLowest);
    }
  }
  if (boxes_ != nullptr) return;
  for (std::int64_t i = 0; i < window.elements(); ++i) {
    if (!outside(i)) continue;
    if (window.dtype == DType::kF64) {
      window.as<double>()[i] = kLowest;
    } else if (window.dtype == DType::kBF16) {
      window.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(kLowest) >> 16);
    } else {
      window.as<float>()[i] = kLowest;
    }
  }
}

namespace {

// Splits outputs into the interior of a shard and the slabs around it.

std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return a <= 0 ? -(-a / b) : (a + b - 1) / b;
}

/// Outputs [begin, end) of each spatial dimension, counted from the rank's first.
struct Places {
  ElementRange along[3];
};

WindowRegion region_at(const SlidingWindows& windows, const Places& places) {
  WindowRegion region;
  region.window = windows.local();
  for (int d = 0; d < windows.spatial(); ++d) {
    const Sliding one = windows.sliding(d);
    region.made_from[d] = places.along[d].begin;
    region.read_from[d] = places.along[d].begin * one.stride;
    region.window.extent[d] = (places.along[d].size() - 1) * one.stride + one.dilation * (one.kernel - 1) + 1;
  }
  return region;
}

/// Outputs whose windows read nothing of other ranks; the zeros beyond the tensor belong to no rank.
Places inside_part(const SlidingWindows& windows) {
  Places inside;
  for (int d = 0; d < windows.spatial(); ++d) {
    const Sliding one = windows.sliding(d);
    const ElementRange own = windows.own(d), made = windows.made(d);
    const std::int64_t reach = one.dilation * (one.kernel - 1) + 1, inputs = windows.global().extent[d];
    ElementRange range = made;
    if (own.begin > 0) range.begin = std::max(made.begin, round_up(own.begin + one.pad_low, one.stride));
    if (own.end < inputs) {
      const std::int64_t room = own.end + one.pad_low - reach;
      range.end = room < 0 ? range.begin : std::min(made.end, room / one.stride + 1);
    }
    inside.along[d] = {range.begin - made.begin, std::max(range.begin, range.end) - made.begin};
  }
  return inside;
}

/// The same windows over the rank's shard of x; returns false where they are entirely beyond the tensor.
bool over_own_part(const SlidingWindows& windows, const Places& inside, WindowRegion& region) {
  for (int d = 0; d < windows.spatial(); ++d) {
    const Sliding one = windows.sliding(d);
    const ElementRange own = windows.own(d);
    const std::int64_t begin = one.stride * (windows.made(d).begin + inside.along[d].begin) - one.pad_low,
                       end = begin + region.window.extent[d];
    const std::int64_t low = std::max(begin, own.begin), high = std::min(end, own.end);
    if (low >= high) return false;
    region.read_from[d] = low - own.begin;
    region.window.extent[d] = high - low;
    region.window.pad_low[d] = low - begin;
    region.window.pad_high[d] = end - high;
  }
  return true;
}

/// Everything except `inside`: two slabs per dimension, within the inner range of the dimensions before.
std::vector<WindowRegion> slabs_around(const SlidingWindows& windows, const Places& inside) {
  std::vector<WindowRegion> slabs;
  Places rest;
  for (int d = 0; d < windows.spatial(); ++d) rest.along[d] = {0, windows.made(d).size()};
  for (int d = 0; d < windows.spatial(); ++d) {
    const std::int64_t last = rest.along[d].end;
    for (const ElementRange side :
         {ElementRange{0, inside.along[d].begin}, ElementRange{inside.along[d].end, last}}) {
      if (side.size() == 0) continue;
      rest.along[d] = side;
      slabs.push_back(region_at(windows, rest));
    }
    rest.along[d] = inside.along[d];
  }
  return slabs;
}

WindowPass pass_over(std::vector<WindowRegion> regions) {
  WindowPass pass{.regions = std::move(regions), .own = {}};
  for (const WindowRegion& region : pass.regions) pass.places += region.window.places();
  return pass;
}

/// Calls fn(bytes of a run, its place in planes and in the box) for all runs of the box.
template <typename Fn>
void for_each_run(const TensorView& planes, std::int64_t first_channel, const std::int64_t* begin,
                  const TensorView& box, Fn&& fn) {
  const int last = box.shape.rank() - 1;
  const std::int64_t item = dtype_bytes(box.dtype, 1), run = box.shape[last];
  for (std::int64_t line = 0; line < box.elements() / std::max<std::int64_t>(1, run); ++line) {
    std::int64_t rest = line, at = begin[last - 2], stride = planes.shape[last];
    for (int dim = last - 1; dim >= 0; --dim) {
      const std::int64_t index = rest % box.shape[dim];
      at += (index + (dim >= 2 ? begin[dim - 2] : dim == 1 ? first_channel : 0)) * stride;
      rest /= box.shape[dim];
      stride *= planes.shape[dim];
    }
    fn(static_cast<std::size_t>(run * item), static_cast<std::byte*>(planes.data) + at * item,
       static_cast<std::byte*>(box.data) + line * run * item);
  }
}

/// A box of planes with these extents.
Box box_at(std::int64_t first_channel, const std::int64_t* begin, const Shape& extents) {
  Box box{extents, extents};
  for (int dim = 0; dim < extents.rank(); ++dim)
    box.offset[dim] = dim >= 2 ? begin[dim - 2] : dim == 1 ? first_channel : 0;
  return box;
}

Box all_of(const Shape& shape) {
  const std::int64_t first[kMaxRank] = {};
  return box_at(0, first, shape);
}

}  // namespace

std::vector<WindowPass> window_passes(const SlidingWindows& windows, bool early) {
  if (early && !windows.empty()) {
    const Places inside = inside_part(windows);
    const bool some = std::all_of(inside.along, inside.along + windows.spatial(),
                                  [](const ElementRange& range) { return range.size() > 0; });
    WindowRegion own = some ? region_at(windows, inside) : WindowRegion{};
    const auto slabs = some ? slabs_around(windows, inside) : std::vector<WindowRegion>{};
    if (!slabs.empty()) {
      std::vector<WindowPass> passes{pass_over({own}), pass_over(slabs)};
      if (over_own_part(windows, inside, own)) {
        passes[0].own.push_back(own);
        return passes;
      }
    }
  }
  WindowRegion all;
  all.window = windows.local(), all.whole = true;
  return {pass_over({all})};
}

void take_box(StridedCopyOps* ops, TensorView planes, std::int64_t first_channel, const std::int64_t* begin,
              TensorView box) {
  if (ops != nullptr) {
    ops->copy(planes, box_at(first_channel, begin, box.shape), box, all_of(box.shape));
    return;
  }
  for_each_run(planes, first_channel, begin, box,
               [](std::size_t bytes, const std::byte* in, std::byte* out) { std::memcpy(out, in, bytes); });
}

void put_box(StridedCopyOps* ops, TensorView box, TensorView planes, std::int64_t first_channel,
             const std::int64_t* begin) {
  if (ops != nullptr) {
    ops->copy(box, all_of(box.shape), planes, box_at(first_channel, begin, box.shape));
    return;
  }
  for_each_run(planes, first_channel, begin, box,
               [](std::size_t bytes, std::byte* out, const std::byte* in) { std::memcpy(out, in, bytes); });
}

namespace {

// Converts the outputs that read a shard of x to the window that adds their gradients up.

/// x's sharding of samples and space, y's of the features.
Layout read_by(const Layout& x, const Layout& y) {
  Layout layout = x;
  layout.shape[1] = y.shape[1];
  std::erase_if(layout.sharding, [](const DimSharding& sharding) { return sharding.dim == 1; });
  for (const DimSharding& sharding : y.sharding)
    if (sharding.dim == 1) layout.sharding.push_back(sharding);
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
  exchange_ = make_map(context.mesh(), "halo_exchange", move,
                       fmt::format("layer '{}': what the gradient of x reads", context.name()));
  const Box own = part_of(move.to, context.mesh().place()), made = part_of(y, context.mesh().place());
  rows_.spatial = windows.spatial();
  fold_ = windows.global();
  for (int d = 0; d < windows.spatial(); ++d) {
    const int dim = d + 2;
    const Sliding window = windows.sliding(d);
    const ElementRange read = dim_window(move.windows[dim].get(), {made.offset[dim], made.end(dim)},
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
