// Blocks between two layouts of one tensor.
#pragma once

#include "moves/linear_map.hpp"

#include <functional>
#include <string>
#include <vector>

namespace tenon::comm {

/// Axes of several ranks along which the tensor is replicated.
std::vector<int> copied_axes(const Layout& layout, std::span<const int> grid);

/// The ranks that differ from `index` only along `axes`, itself included, ascending.
std::vector<int> ranks_along(int index, const std::vector<int>& axes, std::span<const int> grid);

/// Returns "", or why there is no map between the layouts, each of which is valid by itself.
std::string redistribution_refusal(const MoveSpec& spec);

/// The box of a tensor that a rank needs, and the global element at which its local tensor begins.
struct Need {
  Box box;
  Shape origin;
};

/// `box`, relative to `origin`.
Box relative(Box box, const Shape& origin);

/// The blocks that this rank sends and receives if every rank needs `need_of`. Of copies, the one with the
/// receiver's coordinates along the copied axes is sent; of a partial sum all terms are, except over
/// `kept_sums`.
std::vector<Block> blocks_between(const ModelGrid& grid, const Layout& from,
                                  const std::vector<int>& kept_sums,
                                  const std::function<Need(const GridPlace&)>& need_of);
std::vector<Block> redistribution_blocks(const ModelGrid& grid, const Layout& from, const Layout& to);

}  // namespace tenon::comm
