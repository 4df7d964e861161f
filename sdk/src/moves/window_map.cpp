// The exchange of halos for windows: a general exchange of boxes, for any sizes, strides and splits (a halo
// may span several ranks, be needed on one side only, or not exist).
#include "moves/window_map.hpp"

#include <fmt/format.h>

namespace tenon::comm {

namespace {

/// One per dimension.
std::vector<DimWindow> windows_at(const MoveSpec& spec, const GridPlace& place) {
  const Box own = part_of(spec.from, place), out = part_of(spec.to, place);
  std::vector<DimWindow> windows;
  for (int dim = 0; dim < spec.from.shape.rank(); ++dim) {
    windows.push_back(dim_window(spec.windows[static_cast<std::size_t>(dim)].get(),
                                 {own.offset[dim], own.end(dim)}, {out.offset[dim], out.end(dim)},
                                 spec.from.shape[dim]));
  }
  return windows;
}

}  // namespace

Need window_at(const MoveSpec& spec, const GridPlace& place) {
  Need result{{spec.from.shape, spec.from.shape}, spec.from.shape};
  const std::vector<DimWindow> windows = windows_at(spec, place);
  for (int dim = 0; dim < spec.from.shape.rank(); ++dim) {
    const DimWindow& window = windows[static_cast<std::size_t>(dim)];
    result.box.offset[dim] = window.need.begin;
    result.box.extents[dim] = window.need.size();
    result.origin[dim] = window.wanted.begin;
  }
  return result;
}

Shape window_shape(const MoveSpec& spec, const GridPlace& place) {
  Shape shape = spec.from.shape;
  const std::vector<DimWindow> windows = windows_at(spec, place);
  for (int dim = 0; dim < shape.rank(); ++dim)
    shape[dim] = windows[static_cast<std::size_t>(dim)].wanted.size();
  return shape;
}

std::string refuse_windows(const MoveSpec& spec) {
  if (spec.from.shape.rank() != spec.to.shape.rank() ||
      spec.windows.size() != static_cast<std::size_t>(spec.from.shape.rank())) {
    return fmt::format(
        "windows need a map for each of the {} dimensions before and as many after, found {} and {}",
        spec.from.shape.rank(), spec.windows.size(), spec.to.shape.rank());
  }
  for (int dim = 0; dim < spec.from.shape.rank(); ++dim) {
    if (spec.windows[static_cast<std::size_t>(dim)] == nullptr &&
        spec.from.shape[dim] != spec.to.shape[dim]) {
      return fmt::format("dimension {} has no window, but {} elements before and {} after", dim,
                         spec.from.shape[dim], spec.to.shape[dim]);
    }
  }
  return spec.from.partial.empty() && spec.to.partial.empty() ? "" : "windows make no sums";
}

std::unique_ptr<LinearMap> make_windows(ModelGrid& grid, const MoveSpec& spec) {
  const auto need = [&](const GridPlace& place) { return window_at(spec, place); };
  return std::make_unique<BlockMap>(grid, spec, window_shape(spec, grid.place()),
                                    blocks_between(grid, spec.from, {}, need));
}

}  // namespace tenon::comm
