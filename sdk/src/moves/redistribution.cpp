// Computes the blocks that move between two layouts.
#include "moves/redistribution.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::comm {
namespace {

bool has(const std::vector<int>& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

enum class Along : std::uint8_t { kCut, kSum, kCopies };

std::vector<Along> placements(const Layout& layout, std::size_t axes) {
  std::vector<Along> along(axes, Along::kCopies);
  for (const DimSharding& cut : layout.sharding)
    for (const int axis : cut.axes) along[static_cast<std::size_t>(axis)] = Along::kCut;
  for (const int axis : layout.partial) along[static_cast<std::size_t>(axis)] = Along::kSum;
  return along;
}

}  // namespace

std::vector<int> copied_axes(const Layout& layout, std::span<const int> grid) {
  const std::vector<Along> along = placements(layout, grid.size());
  std::vector<int> axes;
  for (std::size_t axis = 0; axis < grid.size(); ++axis)
    if (along[axis] == Along::kCopies && grid[axis] > 1) axes.push_back(static_cast<int>(axis));
  return axes;
}

std::vector<int> ranks_along(int index, const std::vector<int>& axes, std::span<const int> grid) {
  const std::vector<int> self = grid_coordinates(index, grid);
  std::vector<int> members;
  int ranks = 1;
  for (const int extent : grid) ranks *= extent;
  for (int r = 0; r < ranks; ++r) {
    const std::vector<int> there = grid_coordinates(r, grid);
    bool same = true;
    for (std::size_t axis = 0; axis < grid.size(); ++axis)
      same &= there[axis] == self[axis] || has(axes, static_cast<int>(axis));
    if (same) members.push_back(r);
  }
  return members;
}

Box relative(Box box, const Shape& origin) {
  for (int dim = 0; dim < origin.rank(); ++dim) box.offset[dim] -= origin[dim];
  return box;
}

std::string redistribution_refusal(const MoveSpec& spec) {
  const Layout &from = spec.from, &to = spec.to;
  if (!spec.windows.empty()) return "windows are for halo_exchange alone";
  if (!(from.shape == to.shape))
    return fmt::format("a tensor {} cannot become one of shape {}", from.shape.text(), to.shape.text());
  for (const int axis : to.partial) {
    if (!has(from.partial, axis))
      return fmt::format("what is no sum over axis {} of the model grid does not become one", axis);
  }
  return "";
}

std::vector<Block> blocks_between(const ModelGrid& grid, const Layout& from,
                                  const std::vector<int>& kept_sums,
                                  const std::function<Need(const GridPlace&)>& need_of) {
  const std::span<const int> extents = grid.extents();
  const std::vector<Along> sending = placements(from, extents.size());
  const auto sends = [&](const std::vector<int>& sender, const std::vector<int>& receiver) {
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
      const bool near = sending[axis] == Along::kCopies ||
                        (sending[axis] == Along::kSum && has(kept_sums, static_cast<int>(axis)));
      if (near && sender[axis] != receiver[axis]) return false;
    }
    return true;
  };
  std::vector<Block> blocks;
  const auto add = [&](int sender, int receiver) {
    const std::vector<int> at = grid_coordinates(sender, extents),
                           there = grid_coordinates(receiver, extents);
    if (!sends(at, there)) return;
    const Box own = part_of(from, {extents, at});
    const Need need = need_of({extents, there});
    const Box shared = intersection(own, need.box);
    if (shared.elements() > 0) {
      blocks.push_back({sender, receiver, relative(shared, own.offset), relative(shared, need.origin)});
    }
  };
  for (int other = 0; other < grid.size(); ++other) {
    add(grid.index(), other);
    if (other != grid.index()) add(other, grid.index());
  }
  return blocks;
}

std::vector<Block> redistribution_blocks(const ModelGrid& grid, const Layout& from, const Layout& to) {
  return blocks_between(grid, from, to.partial, [&](const GridPlace& place) {
    const Box need = part_of(to, place);
    return Need{need, need.offset};
  });
}

}  // namespace tenon::comm
