// Random meshes, layouts and tensors for the tests of this folder. Elements are small integers, so that every
// sum is exact and movement can be compared bit for bit.
#pragma once

#include <tenon/tensor.hpp>
#include <tenon/transport.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace model_parallel {

using tenon::Box;
using tenon::DimSharding;
using tenon::Layout;
using tenon::Mesh;
using tenon::MeshPlace;
using tenon::Shape;

class Draw {
 public:
  explicit Draw(unsigned seed) : engine_(seed) {}
  /// low ... high.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  int small(int low, int high) { return static_cast<int>(integer(low, high)); }
  bool coin() { return integer(0, 1) == 1; }
  template <typename T>
  void shuffle(std::vector<T>& values) {
    std::shuffle(values.begin(), values.end(), engine_);
  }

  /// `ranks` as a mesh of 1 to 3 axes.
  std::vector<int> mesh(int ranks) {
    std::vector<int> extents;
    for (int left = ranks; left > 1 && extents.size() < 2;) {
      int factor = small(1, left);
      while (left % factor != 0) --factor;
      if (factor > 1 || coin()) extents.push_back(factor);
      left /= factor;
      ranks = left;
    }
    extents.push_back(ranks);
    shuffle(extents);
    return extents;
  }

  Shape shape(int least_dims, int most_dims, std::int64_t most) {
    std::vector<std::int64_t> extents;
    for (int d = small(least_dims, most_dims); d > 0; --d) extents.push_back(integer(1, most));
    return Shape(std::span<const std::int64_t>(extents));
  }

  /// Uneven offsets; empty parts are usual.
  std::vector<std::int64_t> offsets(std::int64_t extent, int parts) {
    if (integer(0, 3) == 0) return tenon::balanced_offsets(extent, parts);
    std::vector<std::int64_t> table{0, extent};
    for (int i = 1; i < parts; ++i) table.push_back(integer(0, extent));
    std::sort(table.begin(), table.end());
    return table;
  }

  /// Assigns every axis of the mesh to a dimension, to copies, or (`sums`) to partial sums.
  Layout layout(const Shape& shape, const std::vector<int>& mesh, bool copies, bool sums) {
    Layout out{shape};
    std::vector<std::vector<int>> axes(shape.rank());
    for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) {
      const auto fate = integer(0, 5);
      if (fate == 0 && copies) continue;
      if (fate <= 2 && sums) {
        out.partial.push_back(axis);
      } else {
        axes[integer(0, shape.rank() - 1)].push_back(axis);
      }
    }
    for (int dim = 0; dim < shape.rank(); ++dim) shard(out, dim, axes[dim], mesh);
    return out;
  }

  void shard(Layout& layout, int dim, std::vector<int> axes, const std::vector<int>& mesh) {
    if (axes.empty()) return;
    shuffle(axes);
    int parts = 1;
    for (const int axis : axes) parts *= mesh[axis];
    layout.sharding.push_back({dim, axes, offsets(layout.shape[dim], parts)});
  }

  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

inline int ranks_of(const std::vector<int>& mesh) {
  int ranks = 1;
  for (const int extent : mesh) ranks *= extent;
  return ranks;
}

inline Box part(const Layout& layout, const std::vector<int>& mesh, int rank) {
  return tenon::part_of(layout, {mesh, tenon::mesh_coordinates(rank, mesh)});
}

/// fn(global index, position in the box) for the elements of a box, row-major.
template <typename Fn>
void each_element(const Box& box, Fn&& fn) {
  std::vector<std::int64_t> at(box.offset.rank(), 0);
  for (std::int64_t position = 0; position < box.elements(); ++position) {
    std::int64_t rest = position;
    for (int dim = box.offset.rank() - 1; dim >= 0; --dim) {
      at[dim] = box.offset[dim] + rest % box.extents[dim];
      rest /= box.extents[dim];
    }
    fn(at, position);
  }
}

inline std::int64_t flat_index(const std::vector<std::int64_t>& at, const Shape& shape) {
  std::int64_t index = 0;
  for (int dim = 0; dim < shape.rank(); ++dim) index = index * shape[dim] + at[dim];
  return index;
}

/// -8 ... 8, by `stream` and element.
inline double small_integer(std::uint64_t stream, std::int64_t element) {
  std::uint64_t x =
      (stream * 0x9e3779b97f4a7c15u) ^ (static_cast<std::uint64_t>(element) * 0xbf58476d1ce4e5b9u);
  x = (x ^ (x >> 31)) * 0x94d049bb133111ebu;
  return static_cast<double>((x >> 33) % 17) - 8;
}

/// The rank's part of the tensor whose element i is small_integer(stream, i). For a partial sum over axes the
/// terms are those of stream + 1 + (place along these axes), which `total` adds up.
inline std::vector<double> held(const Layout& layout, const std::vector<int>& mesh, int rank,
                                std::uint64_t stream) {
  const Box box = part(layout, mesh, rank);
  const std::vector<int> place = tenon::mesh_coordinates(rank, mesh);
  std::uint64_t term = stream;
  int along = 0;
  for (const int axis : layout.partial) {
    along = along * mesh[axis] + place[axis];
    term = stream + 1 + static_cast<std::uint64_t>(along);
  }
  std::vector<double> values(box.elements());
  each_element(box, [&](const auto& at, std::int64_t position) {
    values[position] = small_integer(term, flat_index(at, layout.shape));
  });
  return values;
}

/// Element `index` of the tensor that `held` distributes; `kept` axes stay partial sums, at these
/// coordinates.
inline double total(const Layout& layout, const std::vector<int>& mesh, std::uint64_t stream,
                    std::int64_t index, const std::vector<int>& kept, const std::vector<int>& place) {
  if (layout.partial.empty()) return small_integer(stream, index);
  std::vector<int> extents;
  for (const int axis : layout.partial) extents.push_back(mesh[axis]);
  double sum = 0;
  for (int term = 0; term < ranks_of(extents); ++term) {
    const std::vector<int> along = tenon::mesh_coordinates(term, extents);
    bool counts = true;
    for (std::size_t i = 0; i < along.size(); ++i) {
      const int axis = layout.partial[i];
      const bool stays = std::find(kept.begin(), kept.end(), axis) != kept.end();
      counts &= !stays || along[i] == place[axis];
    }
    if (counts) sum += small_integer(stream + 1 + static_cast<std::uint64_t>(term), index);
  }
  return sum;
}

inline tenon::TensorView view_of(std::vector<double>& values, const Shape& shape) {
  return {values.data(), shape, tenon::DType::kF64};
}

inline std::vector<std::string> no_errors(int ranks) {
  return std::vector<std::string>(ranks);
}

}  // namespace model_parallel
