// A random move for every primitive. A primitive that is registered without one here fails the tests.
#pragma once

#include "cases.hpp"

#include <tenon/sdk/linear_map.hpp>

#include <optional>

namespace model_parallel {

using tenon::MoveSpec;

/// Shards dimension 0 over all axes so that `owner` has everything.
inline Layout owned(const Shape& shape, const std::vector<int>& mesh, int owner) {
  Layout layout{shape};
  std::vector<int> axes;
  for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) axes.push_back(axis);
  layout.sharding.push_back({0, axes, tenon::owned_offsets(shape[0], ranks_of(mesh), owner)});
  return layout;
}

/// `many`, which is not sharded along `axes`, with everything at the rank that is `root` along them.
inline Layout owned_along(const Layout& many, const std::vector<int>& axes, const std::vector<int>& mesh,
                          int root) {
  Layout one = many;
  if (axes.empty()) return one;
  int roots = 1;
  for (const int axis : axes) roots *= mesh[axis];
  auto sharding =
      std::find_if(one.sharding.begin(), one.sharding.end(), [](const auto& c) { return c.dim == 0; });
  if (sharding == one.sharding.end()) {
    one.sharding.push_back({0, {}, {0, one.shape[0]}});
    sharding = one.sharding.end() - 1;
  }
  // Each part becomes `roots` parts, with all elements in one of them.
  std::vector<std::int64_t> offsets{0};
  for (std::size_t part = 0; part + 1 < sharding->offsets.size(); ++part) {
    for (int r = 0; r < roots; ++r)
      offsets.push_back(r < root ? sharding->offsets[part] : sharding->offsets[part + 1]);
  }
  sharding->offsets = offsets;
  sharding->axes.insert(sharding->axes.end(), axes.begin(), axes.end());
  return one;
}

/// The layout in which one rank along each of `axes` holds what all of them hold in `many`, which is not
/// sharded along these axes.
inline Layout rooted(const Layout& many, const std::vector<int>& axes, const std::vector<int>& mesh,
                     Draw& draw) {
  Layout one = many;
  one.partial.clear();
  int roots = 1;
  for (const int axis : axes) roots *= mesh[axis];
  return owned_along(one, axes, mesh, draw.small(0, roots - 1));
}

inline std::vector<int> some_axes(const std::vector<int>& mesh, Draw& draw) {
  std::vector<int> axes;
  for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis)
    if (draw.coin()) axes.push_back(axis);
  if (axes.empty()) axes.push_back(draw.small(0, static_cast<int>(mesh.size()) - 1));
  return axes;
}

/// Sharded over the axes that are not in `axes`; some of them may be copies.
inline Layout sharded_elsewhere(const Shape& shape, const std::vector<int>& mesh,
                                const std::vector<int>& axes, Draw& draw) {
  Layout layout{shape};
  std::vector<std::vector<int>> over(shape.rank());
  for (int axis = 0; axis < static_cast<int>(mesh.size()); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end() || draw.integer(0, 3) == 0) continue;
    over[draw.integer(0, shape.rank() - 1)].push_back(axis);
  }
  for (int dim = 0; dim < shape.rank(); ++dim) draw.shard(layout, dim, over[dim], mesh);
  return layout;
}

inline std::optional<MoveSpec> random_windows(const std::vector<int>& mesh, Draw& draw) {
  MoveSpec spec;
  const Shape inputs = draw.shape(1, 3, 13);
  Shape outputs = inputs;
  for (int dim = 0; dim < inputs.rank(); ++dim) {
    spec.windows.push_back(nullptr);
    if (draw.integer(0, 4) == 0) continue;
    tenon::Sliding window{draw.integer(1, 5), draw.integer(1, 4), draw.integer(1, 3), draw.integer(0, 3),
                          draw.integer(0, 3)};
    while (window.outputs(inputs[dim]) == 0) window = {1, draw.integer(1, 4), 1, 0, draw.integer(0, 2)};
    outputs[dim] = window.outputs(inputs[dim]);
    spec.windows.back() = tenon::sliding_map(window);
  }
  spec.from = draw.layout(inputs, mesh, true, false);
  spec.to = draw.layout(outputs, mesh, true, false);
  return spec;
}

/// Windows that reach no further than neighbours' parts, over the same axes on both sides.
inline MoveSpec random_nested_windows(const std::vector<int>& mesh, Draw& draw) {
  for (;;) {
    MoveSpec spec = *random_windows(mesh, draw);
    spec.to.sharding = spec.from.sharding;
    const bool even = draw.integer(0, 3) > 0;
    for (std::size_t i = 0; i < spec.to.sharding.size(); ++i) {
      DimSharding &from = spec.from.sharding[i], &to = spec.to.sharding[i];
      const int parts = static_cast<int>(from.offsets.size()) - 1;
      if (even) from.offsets = tenon::balanced_offsets(spec.from.shape[from.dim], parts);
      to.offsets = even ? tenon::balanced_offsets(spec.to.shape[to.dim], parts)
                        : draw.offsets(spec.to.shape[to.dim], parts);
    }
    if (tenon::primitive("halo_exchange_nested").refusal(spec, mesh).empty()) return spec;
  }
}

/// Returns nothing if there is none for this name.
inline std::optional<MoveSpec> random_move(std::string_view name, const std::vector<int>& mesh, Draw& draw) {
  if (name == "halo_exchange") return random_windows(mesh, draw);
  if (name == "halo_exchange_nested") return random_nested_windows(mesh, draw);
  const Shape shape = draw.shape(1, 3, 9);
  const int ranks = ranks_of(mesh);
  const std::vector<int> axes = some_axes(mesh, draw);
  MoveSpec spec;
  const auto between = [&](Layout from, Layout to) {
    spec.from = std::move(from), spec.to = std::move(to);
    return spec;
  };
  const auto sharded = [&] { return draw.layout(shape, mesh, false, false); };
  const auto root = [&] { return owned(shape, mesh, draw.small(0, ranks - 1)); };
  if (name == "send_receive") return between(root(), root());
  if (name == "scatter") return between(root(), sharded());
  if (name == "gather") return between(sharded(), root());
  if (name == "all_to_all") return between(sharded(), sharded());
  if (name == "repartition")
    return between(draw.layout(shape, mesh, true, false), draw.layout(shape, mesh, true, false));
  if (name == "all_gather" || name == "reduce_scatter") {
    const Layout copies = sharded_elsewhere(shape, mesh, axes, draw);
    Layout sums = copies;
    sums.partial = axes;
    std::vector<int> over;
    Layout parts = copies;
    // Every free axis shards a whole dimension, or all of them dimension 0 in addition to its axes.
    const auto dim = static_cast<int>(draw.integer(0, shape.rank() - 1));
    std::erase_if(parts.sharding, [&](const DimSharding& c) {
      if (c.dim == dim) over = c.axes;
      return c.dim == dim;
    });
    over.insert(over.end(), axes.begin(), axes.end());
    draw.shard(parts, dim, over, mesh);
    return name == "all_gather" ? between(parts, copies) : between(sums, parts);
  }
  if (name == "all_reduce" || name == "sum_reduce" || name == "broadcast") {
    const Layout copies = sharded_elsewhere(shape, mesh, axes, draw);
    Layout sums = copies;
    sums.partial = axes;
    if (name == "all_reduce") return between(sums, copies);
    const Layout one = rooted(copies, axes, mesh, draw);
    return name == "broadcast" ? between(one, copies) : between(sums, one);
  }
  return std::nullopt;
}

}  // namespace model_parallel
