// Splits outputs into the interior of a shard and the slabs around it.
#include "passes.hpp"

#include <algorithm>
#include <cstring>

namespace tenon::distdl {
namespace {

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

void take_box(BoxOps* ops, TensorView planes, std::int64_t first_channel, const std::int64_t* begin,
              TensorView box) {
  if (ops != nullptr) {
    ops->copy(planes, box_at(first_channel, begin, box.shape), box, all_of(box.shape));
    return;
  }
  for_each_run(planes, first_channel, begin, box,
               [](std::size_t bytes, const std::byte* in, std::byte* out) { std::memcpy(out, in, bytes); });
}

void put_box(BoxOps* ops, TensorView box, TensorView planes, std::int64_t first_channel,
             const std::int64_t* begin) {
  if (ops != nullptr) {
    ops->copy(box, all_of(box.shape), planes, box_at(first_channel, begin, box.shape));
    return;
  }
  for_each_run(planes, first_channel, begin, box,
               [](std::size_t bytes, std::byte* out, const std::byte* in) { std::memcpy(out, in, bytes); });
}

}  // namespace tenon::distdl
