// The exchange of halos for windows, at once and dimension by dimension.
#include "moves/window_map.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::comm {

// The exchange of halos for windows: a general exchange of boxes, for any sizes, strides and splits (a halo
// may span several ranks, be needed on one side only, or not exist).

namespace {

/// One per dimension.
std::vector<DimWindow> windows_at(const MoveSpec& spec, const MeshPlace& place) {
  const Box own = part_of(spec.from, place), out = part_of(spec.to, place);
  std::vector<DimWindow> windows;
  for (int dim = 0; dim < spec.from.shape.rank(); ++dim) {
    windows.push_back(dim_window(spec.windows[dim].get(), {own.offset[dim], own.end(dim)},
                                 {out.offset[dim], out.end(dim)}, spec.from.shape[dim]));
  }
  return windows;
}

}  // namespace

Need window_at(const MoveSpec& spec, const MeshPlace& place) {
  Need result{{spec.from.shape, spec.from.shape}, spec.from.shape};
  const std::vector<DimWindow> windows = windows_at(spec, place);
  for (int dim = 0; dim < spec.from.shape.rank(); ++dim) {
    const DimWindow& window = windows[dim];
    result.box.offset[dim] = window.need.begin;
    result.box.extents[dim] = window.need.size();
    result.origin[dim] = window.wanted.begin;
  }
  return result;
}

Shape window_shape(const MoveSpec& spec, const MeshPlace& place) {
  Shape shape = spec.from.shape;
  const std::vector<DimWindow> windows = windows_at(spec, place);
  for (int dim = 0; dim < shape.rank(); ++dim) shape[dim] = windows[dim].wanted.size();
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
    if (spec.windows[dim] == nullptr && spec.from.shape[dim] != spec.to.shape[dim]) {
      return fmt::format("dimension {} has no window, but {} elements before and {} after", dim,
                         spec.from.shape[dim], spec.to.shape[dim]);
    }
  }
  return spec.from.partial.empty() && spec.to.partial.empty() ? "" : "windows make no sums";
}

std::unique_ptr<LinearMap> make_windows(Mesh& mesh, const MoveSpec& spec) {
  const auto need = [&](const MeshPlace& place) { return window_at(spec, place); };
  return std::make_unique<BlockMap>(mesh, spec, window_shape(spec, mesh.place()),
                                    blocks_between(mesh, spec.from, {}, need));
}

// A chain of exchanges along lines of ranks: each extends the tensors to the windows in one more dimension;
// in later dimensions they are still the ranks' own parts.

namespace {

/// The sharding of a dimension; nullptr for a single part.
const DimSharding* parts_of(const Layout& layout, int dim) {
  const DimSharding* sharding = sharding_of(layout, dim);
  return sharding != nullptr && sharding->offsets.size() > 2 ? sharding : nullptr;
}

/// The sharded dimensions, one step each.
std::vector<int> sharded_dims(const Layout& layout) {
  std::vector<int> dims;
  for (int dim = 0; dim < layout.shape.rank(); ++dim)
    if (parts_of(layout, dim) != nullptr) dims.push_back(dim);
  return dims;
}

std::string refuse_reach(const DimSharding& from, const DimSharding& to, const IndexMap* map,
                         std::int64_t inputs) {
  const std::size_t parts = from.offsets.size() - 1;
  for (std::size_t part = 0; part < parts; ++part) {
    const ElementRange need = dim_window(map, {from.offsets[part], from.offsets[part + 1]},
                                         {to.offsets[part], to.offsets[part + 1]}, inputs)
                                  .need;
    const ElementRange near{from.offsets[part == 0 ? 0 : part - 1], from.offsets[std::min(part + 2, parts)]};
    if (need.size() == 0 || (need.begin >= near.begin && need.end <= near.end)) continue;
    return fmt::format(
        "part {} of dimension {} reads elements {} to {}, but it and its neighbours hold {} to {}; take "
        "halo_exchange",
        part, from.dim, need.begin, need.end, near.begin, near.end);
  }
  return "";
}

/// The box that the rank at `place` holds after `done` steps, and where its tensor begins. Before all steps
/// it is the rank's own part; after the first one, dimensions that are not sharded match the window.
Need held_behind(const MoveSpec& spec, const std::vector<int>& dims, std::size_t done,
                 const MeshPlace& place) {
  const Box own = part_of(spec.from, place);
  if (done == 0) return {own, own.offset};
  Need held{own, own.offset};
  const Need window = window_at(spec, place);
  for (int dim = 0; dim < own.offset.rank(); ++dim) {
    const auto at = std::find(dims.begin(), dims.end(), dim);
    if (at != dims.end() && static_cast<std::size_t>(at - dims.begin()) >= done) continue;
    held.box.offset[dim] = window.box.offset[dim], held.box.extents[dim] = window.box.extents[dim];
  }
  held.origin = done < dims.size() ? held.box.offset : window.origin;
  return held;
}

}  // namespace

std::string refuse_nested_windows(const MoveSpec& spec, std::span<const int>) {
  std::string problem = refuse_windows(spec);
  for (int dim = 0; problem.empty() && dim < spec.from.shape.rank(); ++dim) {
    const DimSharding *from = parts_of(spec.from, dim), *to = parts_of(spec.to, dim);
    if ((from == nullptr) != (to == nullptr) || (from != nullptr && from->axes != to->axes)) {
      problem = fmt::format("dimension {} is sharded over other axes afterwards; use halo_exchange", dim);
    } else if (from != nullptr) {
      const auto& map = spec.windows[dim];
      problem = refuse_reach(*from, *to, map.get(), spec.from.shape[dim]);
    }
  }
  return problem;
}

std::unique_ptr<LinearMap> make_nested_windows(Mesh& mesh, const MoveSpec& spec) {
  const std::vector<int> dims = sharded_dims(spec.from);
  const std::size_t count = std::max<std::size_t>(dims.size(), 1);
  const Shape range = window_shape(spec, mesh.place());
  std::vector<ExchangeSpec> steps;
  for (std::size_t nth = 0; nth < count; ++nth) {
    const auto held = [&](int rank, std::size_t done) {
      return held_behind(spec, dims, done, {mesh.extents(), mesh_coordinates(rank, mesh.extents())});
    };
    ExchangeSpec step;
    step.dtype = spec.dtype;
    step.source = held(mesh.index(), nth).box.extents;
    step.target = nth + 1 == count ? range : held(mesh.index(), nth + 1).box.extents;
    const auto add = [&](int sender, int receiver) {
      const Need from = held(sender, nth), to = held(receiver, nth + 1);
      const Box shared = intersection(from.box, to.box);
      if (shared.elements() == 0) return;
      step.blocks.push_back({sender, receiver, relative(shared, from.origin), relative(shared, to.origin)});
    };
    const std::vector<int> along = dims.empty() ? std::vector<int>{} : parts_of(spec.from, dims[nth])->axes;
    for (const int other : ranks_along(mesh.index(), along, mesh.extents())) {
      add(mesh.index(), other);
      if (other != mesh.index()) add(other, mesh.index());
    }
    steps.push_back(std::move(step));
  }
  return std::make_unique<ChainMap>(mesh, spec, range, std::move(steps));
}

}  // namespace tenon::comm
