// Static memory planning: buffers with known lifetimes are placed in one block so that those alive together
// never overlap. Pure; it knows nothing of layers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tenon::graph {

/// A buffer that is alive in every step of [first, last].
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
  std::string what;        ///< for the printed plan
  std::size_t offset = 0;  ///< result, a multiple of 64
};

/// Places all buffers; returns the size of the block. Greedy by size (large first, then early first), lowest
/// free offset.
std::size_t place(std::vector<Lifetime>& buffers);

}  // namespace tenon::graph
