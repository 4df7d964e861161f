// Blocks between two layouts of one tensor.
#pragma once

#include "moves/linear_map.hpp"

#include <functional>
#include <string>
#include <vector>

namespace tenon::comm {

/// Axes of several ranks along which all hold the same.
std::vector<int> copied_axes(const Layout& layout, std::span<const int> grid);

/// The ranks that differ from `index` along `axes` alone, itself included, ascending.
std::vector<int> ranks_along(int index, const std::vector<int>& axes, std::span<const int> grid);

/// Empty, or why there is no map between these two, whose layouts are possible each by itself.
std::string redistribution_refusal(const MoveSpec& spec);

/// What a rank needs of a tensor, and the global element at which its local tensor begins.
struct Need {
  Box box;
  Shape origin;
};

/// `box`, counted from `origin`.
Box relative(Box box, const Shape& origin);

/// What this rank sends and receives, where every rank needs what `need_of` says. Of copies the one with the
/// receiver's coordinates along the copied axes is sent; of a sum all terms are, but over `kept_sums`.
std::vector<Block> blocks_between(const ModelGrid& grid, const Layout& from,
                                  const std::vector<int>& kept_sums,
                                  const std::function<Need(const GridPlace&)>& need_of);
std::vector<Block> redistribution_blocks(const ModelGrid& grid, const Layout& from, const Layout& to);

}  // namespace tenon::comm
