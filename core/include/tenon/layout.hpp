// Where a global tensor lies on a model grid. A grid is a row-major block of ranks; along each of its axes a
// tensor is cut (every rank holds a part of one dimension), replicated (every rank holds the same), or a
// partial sum (the tensor is the sum of what the ranks hold). Parts may be uneven or empty, and an empty part
// is how a rank has nothing to do with a tensor.
#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

TENON_ABI_BEGIN

/// The axis along which the replicas lie. A row table cut along it exists once in the run: each replica owns
/// some rows, reads the others' through messages, and the core brings every row's gradients to its owner.
/// Nothing else can be cut along it.
inline constexpr int kReplicaAxis = -1;

/// How one dimension of a global tensor is cut over axes of the model grid, together and row-major, or over
/// the replicas. offsets has parts + 1 entries that rise from 0 to the extent, one part per rank of those
/// axes.
struct DimSharding {
  int dim = 0;
  std::vector<int> axes;
  std::vector<std::int64_t> offsets;
};

/// Where a rank stands.
struct GridPlace {
  std::span<const int> extents = {};      ///< ranks along each axis of the model grid; empty: no grid
  std::span<const int> coordinates = {};  ///< one per axis
  int replica = 0;
};

/// Indices [begin, end).
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const noexcept { return end - begin; }
};

/// Elements [offset, offset + extents) of a tensor. Both shapes have the tensor's rank.
struct Box {
  Shape offset;
  Shape extents;

  std::int64_t elements() const noexcept { return extents.elements(); }
  std::int64_t end(int dim) const noexcept { return offset[dim] + extents[dim]; }
  bool operator==(const Box& other) const noexcept = default;
};

/// What both boxes hold; extents of 0 where they share nothing.
Box intersection(const Box& a, const Box& b) noexcept;

/// Of a value or a parameter. A layout whose shape has no dimensions says nothing.
struct Layout {
  Shape shape;                             ///< global
  std::vector<DimSharding> sharding = {};  ///< at most one per dimension, an axis in at most one
  std::vector<int> partial = {};           ///< axes over which it is a sum, in none of the above

  bool stated() const noexcept { return shape.rank() > 0; }
  /// Every rank holds all of it.
  bool whole() const noexcept { return sharding.empty() && partial.empty(); }
  bool operator==(const Layout& other) const;
};

/// floor(extent / parts) each, the first extent % parts one more; as an offset table.
std::vector<std::int64_t> balanced_offsets(std::int64_t extent, int parts);
/// Everything at part `owner`.
std::vector<std::int64_t> owned_offsets(std::int64_t extent, int parts, int owner);

/// How dimension `dim` is cut; null where it is whole.
const DimSharding* cut_of(const Layout& layout, int dim) noexcept;

/// Throws Error(kConfig), beginning with `what`, unless axes exist, are used once, and offset tables fit.
void check_layout(const Layout& layout, std::span<const int> grid, std::string_view what);
/// What a rank holds. The layout has been checked.
Box part_of(const Layout& layout, const GridPlace& place);
/// The axes along which ranks hold other parts.
std::vector<int> cut_axes(const Layout& layout);
/// "[10, 28, 28], dimension 1 cut over axes 2, 3 at 0, 14, 28, a sum over axis 1"
std::string layout_text(const Layout& layout);

/// Coordinates of the rank at `index` of a grid, and back.
std::vector<int> grid_coordinates(int index, std::span<const int> grid);
int grid_index(std::span<const int> coordinates, std::span<const int> grid);

TENON_ABI_END
