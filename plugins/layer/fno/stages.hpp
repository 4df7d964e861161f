// Layouts of a transform over a mesh, one dimension after the other: each step finds its own dimension
// whole. Where nothing is sharded nothing moves.
#pragma once

#include "common.hpp"

#include <vector>

namespace tenon::fno {

enum class Form : std::uint8_t {
  kPencil,  ///< dimensions in the order of one rank, so results have its bits (Grady et al. 2022)
  kSlab,    ///< whole dimensions first, then those that were sharded: one move (Witte et al. 2023)
};

struct Stage {
  int dim = 0;    ///< of the block
  Layout before;  ///< of the block before its transform
};

/// `x`: layout of [batch, channels, points...]; batch and channels stay as they are. `modes`: kept per
/// dimension of points, low and high ones together. Throws Error(kConfig), beginning with `what`, for slabs
/// of points whose last dimension is sharded: its transform is that of real numbers and comes first.
std::vector<Stage> stages(const Layout& x, std::span<const std::int64_t> modes, Form form,
                          std::span<const int> grid, const std::string& what);

/// `layout` with `extent` along `dim`, which is whole.
Layout resized(Layout layout, int dim, std::int64_t extent);

}  // namespace tenon::fno
