// Checks of layouts and the arithmetic of parts.
#include <tenon/error.hpp>
#include <tenon/tensor.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

TENON_ABI_BEGIN

namespace {

std::string axes_text(const std::vector<int>& axes) {
  if (axes.size() == 1 && axes.front() == kReplicaAxis) return "the replicas";
  return fmt::format("{} {}", axes.size() == 1 ? "axis" : "axes", fmt::join(axes, ", "));
}

void use_axes(const std::vector<int>& axes, std::span<const int> grid, std::vector<int>& used,
              std::string_view what) {
  for (const int axis : axes) {
    if (axis < 0 || axis >= static_cast<int>(grid.size())) {
      fail_config(fmt::format("{}: laid over axis {} of the model grid, which has {} axes ([{}])", what, axis,
                              grid.size(), fmt::join(grid, ", ")));
    }
    if (used[static_cast<std::size_t>(axis)]++ != 0)
      fail_config(fmt::format("{}: axis {} of the model grid is used twice", what, axis));
  }
}

std::size_t part_index(const DimSharding& cut, const GridPlace& place) {
  if (cut.axes.size() == 1 && cut.axes.front() == kReplicaAxis)
    return static_cast<std::size_t>(place.replica);
  int index = 0;
  for (const int axis : cut.axes) {
    const auto at = static_cast<std::size_t>(axis);
    index = index * place.extents[at] + place.coordinates[at];
  }
  return static_cast<std::size_t>(index);
}

}  // namespace

const DimSharding* cut_of(const Layout& layout, int dim) noexcept {
  const auto found = std::find_if(layout.sharding.begin(), layout.sharding.end(),
                                  [dim](const DimSharding& cut) { return cut.dim == dim; });
  return found == layout.sharding.end() ? nullptr : &*found;
}

Box intersection(const Box& a, const Box& b) noexcept {
  Box shared = a;
  for (int dim = 0; dim < a.offset.rank(); ++dim) {
    shared.offset[dim] = std::max(a.offset[dim], b.offset[dim]);
    shared.extents[dim] = std::max<std::int64_t>(0, std::min(a.end(dim), b.end(dim)) - shared.offset[dim]);
  }
  return shared;
}

bool Layout::operator==(const Layout& other) const {
  const auto same = [](const DimSharding& a, const DimSharding& b) {
    return a.dim == b.dim && a.axes == b.axes && a.offsets == b.offsets;
  };
  const auto has = [&](const std::vector<DimSharding>& all, const DimSharding& cut) {
    return std::any_of(all.begin(), all.end(), [&](const DimSharding& one) { return same(one, cut); });
  };
  return shape == other.shape && sharding.size() == other.sharding.size() &&
         std::all_of(sharding.begin(), sharding.end(),
                     [&](const DimSharding& cut) { return has(other.sharding, cut); }) &&
         std::is_permutation(partial.begin(), partial.end(), other.partial.begin(), other.partial.end());
}

std::vector<std::int64_t> balanced_offsets(std::int64_t extent, int parts) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t i = 0; i <= parts; ++i)
    offsets.push_back(i * (extent / parts) + std::min(i, extent % parts));
  return offsets;
}

std::vector<std::int64_t> owned_offsets(std::int64_t extent, int parts, int owner) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(parts) + 1, extent);
  std::fill_n(offsets.begin(), owner + 1, 0);
  return offsets;
}

void check_layout(const Layout& layout, std::span<const int> grid, std::string_view what) {
  std::vector<int> used(grid.size(), 0);
  std::vector<bool> cut_dims(static_cast<std::size_t>(layout.shape.rank()), false);
  for (const DimSharding& cut : layout.sharding) {
    if (cut.dim < 0 || cut.dim >= layout.shape.rank()) {
      fail_config(
          fmt::format("{}: dimension {} is cut, but the shape is {}", what, cut.dim, layout.shape.text()));
    }
    if (cut_dims[static_cast<std::size_t>(cut.dim)])
      fail_config(
          fmt::format("{}: dimension {} is cut twice; cut it over several axes together", what, cut.dim));
    cut_dims[static_cast<std::size_t>(cut.dim)] = true;
    // As many parts as there are replicas: only the run knows how many.
    std::size_t parts = cut.offsets.empty() ? 1 : cut.offsets.size() - 1;
    if (cut.axes != std::vector{kReplicaAxis}) {
      use_axes(cut.axes, grid, used, what);
      parts = 1;
      for (const int axis : cut.axes) parts *= static_cast<std::size_t>(grid[static_cast<std::size_t>(axis)]);
    }
    if (cut.offsets.size() != parts + 1 || cut.offsets.front() != 0 ||
        cut.offsets.back() != layout.shape[cut.dim] ||
        !std::is_sorted(cut.offsets.begin(), cut.offsets.end())) {
      fail_config(fmt::format(
          "{}: the offset table of dimension {} over {} must rise from 0 to {} in {} parts, found [{}]", what,
          cut.dim, axes_text(cut.axes), layout.shape[cut.dim], parts, fmt::join(cut.offsets, ", ")));
    }
  }
  use_axes(layout.partial, grid, used, what);
}

Box part_of(const Layout& layout, const GridPlace& place) {
  Box box{layout.shape, layout.shape};
  for (int dim = 0; dim < layout.shape.rank(); ++dim) {
    box.offset[dim] = 0;
    const DimSharding* cut = cut_of(layout, dim);
    if (cut == nullptr) continue;
    const std::size_t part = part_index(*cut, place);
    box.offset[dim] = cut->offsets.at(part);
    box.extents[dim] = cut->offsets.at(part + 1) - cut->offsets[part];
  }
  return box;
}

std::vector<int> cut_axes(const Layout& layout) {
  std::vector<int> axes;
  for (const DimSharding& cut : layout.sharding) axes.insert(axes.end(), cut.axes.begin(), cut.axes.end());
  return axes;
}

std::string layout_text(const Layout& layout) {
  std::string text = layout.shape.text();
  for (const DimSharding& cut : layout.sharding) {
    text += fmt::format(", dimension {} cut over {} at {}", cut.dim, axes_text(cut.axes),
                        fmt::join(cut.offsets, ", "));
  }
  if (!layout.partial.empty()) text += ", a sum over " + axes_text(layout.partial);
  return text;
}

std::vector<int> grid_coordinates(int index, std::span<const int> grid) {
  std::vector<int> coordinates(grid.size());
  for (std::size_t axis = grid.size(); axis-- > 0;) {
    coordinates[axis] = index % grid[axis];
    index /= grid[axis];
  }
  return coordinates;
}

int grid_index(std::span<const int> coordinates, std::span<const int> grid) {
  int index = 0;
  for (std::size_t axis = 0; axis < grid.size(); ++axis) index = index * grid[axis] + coordinates[axis];
  return index;
}

TENON_ABI_END
