// The named moves: the layouts that each accepts, and how it is carried out.
#include "moves/linear_map.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::comm {
namespace {

// The map `halo_exchange`: from a rank's part of a tensor to the window of it that its outputs read, with
// zeros where the window reaches beyond the tensor. A general exchange of boxes, for any sizes, strides and
// splits (a halo may span several ranks, be needed on one side only, or not exist).

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

/// The window that the rank at `place` needs for its outputs. Its tensor begins where the window does, pads
/// included.
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

/// Extents of that tensor.
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

// The map `halo_exchange_nested`: the windows of `halo_exchange` where none reaches beyond a neighbour's
// part, one dimension after another. Corners travel through shared neighbours, so a rank sends two messages
// per sharded dimension, not one to each of its 3^D - 1 neighbours. The price is one round per dimension, of
// which only the first is overlapped (the classical scheme of Hewett, Grady 2020).
//
// A chain of exchanges along lines of ranks: each extends the tensors to the windows in one more dimension;
// in later dimensions they are still the ranks' own parts.

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

/// Returns "", or why the map is impossible; also if a dimension is sharded over other axes after than
/// before. Ranks without outputs and windows that pads fill are allowed: nothing is fetched for them.
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

/// Windows have the bits of `halo_exchange`. The adjoint sums dimension by dimension, the last first, and
/// within one in ascending order of ranks: a fixed order other than that of `halo_exchange`.
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

}  // namespace
}  // namespace tenon::comm

TENON_ABI_BEGIN

namespace {

using Grid = std::span<const int>;
using comm::copied_axes;
using comm::ranks_along;

/// The map whose forward is the adjoint of another one.
class Reversed final : public LinearMap {
 public:
  explicit Reversed(std::unique_ptr<LinearMap> inner) : inner_(std::move(inner)) {}
  Shape local_domain() const override { return inner_->local_range(); }
  Shape local_range() const override { return inner_->local_domain(); }
  Flight start_forward(TensorView x, TensorView y, bool accumulate) override {
    return inner_->start_adjoint(x, y, accumulate);
  }
  Flight start_adjoint(TensorView y, TensorView x, bool accumulate) override {
    return inner_->start_forward(y, x, accumulate);
  }
  void finish(Flight flight) override { inner_->finish(flight); }
  std::int64_t bytes_sent(Direction direction) const override {
    return inner_->bytes_sent(direction == Direction::kForward ? Direction::kTranspose : Direction::kForward);
  }

 private:
  std::unique_ptr<LinearMap> inner_;
};

bool overlaps(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int axis) { return std::find(b.begin(), b.end(), axis) != b.end(); });
}

std::vector<int> without(std::vector<int> axes, const std::vector<int>& others) {
  std::erase_if(axes, [&](int axis) { return overlaps({axis}, others); });
  return axes;
}

std::vector<Box> parts(const Layout& layout, Grid mesh) {
  int ranks = 1;
  for (const int extent : mesh) ranks *= extent;
  std::vector<Box> all;
  for (int r = 0; r < ranks; ++r) all.push_back(part_of(layout, {mesh, mesh_coordinates(r, mesh)}));
  return all;
}

std::string one_owner(const Layout& layout, Grid mesh, const char* side) {
  const std::vector<Box> all = parts(layout, mesh);
  const auto holders =
      std::count_if(all.begin(), all.end(), [](const Box& box) { return box.elements() > 0; });
  return holders <= 1 && layout.partial.empty() ? ""
                                                : fmt::format("one rank alone must hold the tensor {}", side);
}

std::string owned_once(const Layout& layout, Grid mesh, const char* side) {
  if (!layout.partial.empty()) return fmt::format("the tensor must not be a sum {}", side);
  return copied_axes(layout, mesh).empty() ? "" : fmt::format("every element must have one owner {}", side);
}

std::string first_of(std::initializer_list<std::string> problems) {
  for (const std::string& problem : problems)
    if (!problem.empty()) return problem;
  return "";
}

std::string refuse_send_receive(const MoveSpec& spec, Grid mesh) {
  const Layout &from = spec.from, &to = spec.to;
  return first_of({one_owner(from, mesh, "before"), one_owner(to, mesh, "after")});
}
std::string refuse_scatter(const MoveSpec& spec, Grid mesh) {
  const Layout &from = spec.from, &to = spec.to;
  return first_of({one_owner(from, mesh, "before"), owned_once(to, mesh, "after")});
}
std::string refuse_gather(const MoveSpec& spec, Grid mesh) {
  const Layout &from = spec.from, &to = spec.to;
  return first_of({owned_once(from, mesh, "before"), one_owner(to, mesh, "after")});
}
std::string refuse_all_to_all(const MoveSpec& spec, Grid mesh) {
  const Layout &from = spec.from, &to = spec.to;
  return first_of({owned_once(from, mesh, "before"), owned_once(to, mesh, "after")});
}
std::string refuse_repartition(const MoveSpec& spec, Grid) {
  const Layout &from = spec.from, &to = spec.to;
  return from.partial.empty() && to.partial.empty() ? "" : "a repartition makes no sums";
}
std::string refuse_all_gather(const MoveSpec& spec, Grid mesh) {
  const Layout &from = spec.from, &to = spec.to;
  if (!from.partial.empty()) return "an all-gather makes no sums";
  return without(copied_axes(from, mesh), copied_axes(to, mesh)).empty() ? "" : "copies become parts";
}
std::string refuse_reduce_scatter(const MoveSpec& spec, Grid mesh) {
  const Layout &from = spec.from, &to = spec.to;
  if (from.partial.empty()) return "the input layout is not a partial sum";
  return overlaps(from.partial, copied_axes(to, mesh)) ? "the output is replicated: use all_reduce" : "";
}
std::string refuse_all_reduce(const MoveSpec& spec, Grid mesh) {
  const Layout &from = spec.from, &to = spec.to;
  if (from.partial.empty()) return "the input layout is not a partial sum";
  for (const int axis : from.partial) {
    if (mesh[axis] > 1 && !overlaps({axis}, copied_axes(to, mesh)))
      return fmt::format("every rank along axis {} must hold the sum afterwards", axis);
  }
  return parts(from, mesh) == parts(to, mesh) && to.partial.empty() ? "" : "a part moves to another place";
}

/// The only rank of `members` that holds `part`; -1 if there is none.
int owner_of(const std::vector<Box>& all, const std::vector<int>& members, const Box& part) {
  int owner = -1;
  for (const int member : members) {
    const Box& box = all[member];
    if (box.elements() == 0) continue;
    if (owner >= 0 || !(box == part)) return -1;
    owner = member;
  }
  return part.elements() == 0 ? members.front() : owner;
}

/// Returns "" if along the axes `spread` one rank of `one` alone holds what all ranks of `many` hold.
std::string refuse_roots(const Layout& one, const Layout& many, const std::vector<int>& spread, Grid mesh) {
  const std::vector<Box> owned = parts(one, mesh), held = parts(many, mesh);
  for (std::size_t r = 0; r < held.size(); ++r) {
    if (owner_of(owned, ranks_along(static_cast<int>(r), spread, mesh), held[r]) < 0)
      return fmt::format("no rank alone holds what rank {} of the mesh shares", r);
  }
  return "";
}

std::string refuse_broadcast(const MoveSpec& spec, Grid mesh) {
  const Layout &from = spec.from, &to = spec.to;
  if (!from.partial.empty() || !to.partial.empty()) return "a broadcast makes no sums";
  return refuse_roots(from, to, without(copied_axes(to, mesh), copied_axes(from, mesh)), mesh);
}
std::string refuse_sum_reduce(const MoveSpec& spec, Grid mesh) {
  const Layout &from = spec.from, &to = spec.to;
  if (from.partial.empty()) return "the input layout is not a partial sum";
  if (!to.partial.empty()) return "the output layout is a partial sum";
  return refuse_roots(to, from, from.partial, mesh);
}

std::unique_ptr<LinearMap> make_blocks(Mesh& mesh, const MoveSpec& spec) {
  return std::make_unique<comm::BlockMap>(mesh, spec, comm::redistribution_blocks(mesh, spec.from, spec.to));
}
std::unique_ptr<LinearMap> make_all_reduce(Mesh& mesh, const MoveSpec& spec) {
  return comm::make_through_pieces(mesh, spec, ranks_along(mesh.index(), spec.from.partial, mesh.extents()),
                                   -1);
}
std::unique_ptr<LinearMap> spread(Mesh& mesh, const MoveSpec& spec, const std::vector<int>& axes) {
  const std::vector<int> members = ranks_along(mesh.index(), axes, mesh.extents());
  const int root = owner_of(parts(spec.from, mesh.extents()), members, part_of(spec.to, mesh.place()));
  return comm::make_through_pieces(mesh, spec, members, root);
}
std::unique_ptr<LinearMap> make_broadcast(Mesh& mesh, const MoveSpec& spec) {
  return spread(mesh, spec,
                without(copied_axes(spec.to, mesh.extents()), copied_axes(spec.from, mesh.extents())));
}
std::unique_ptr<LinearMap> make_sum_reduce(Mesh& mesh, const MoveSpec& spec) {
  MoveSpec back = spec;
  std::swap(back.from, back.to);
  back.to.partial.clear();  // a partial sum becomes copies in the adjoint
  return std::make_unique<Reversed>(spread(mesh, back, spec.from.partial));
}

constexpr std::string_view kWindows = "halo_exchange", kNestedWindows = "halo_exchange_nested";
constexpr Primitive kPrimitives[] = {
    {"send_receive", "from the one rank that holds a tensor to another", "send_receive", refuse_send_receive,
     make_blocks},
    {"scatter", "from the one rank that holds a tensor to its parts", "gather", refuse_scatter, make_blocks},
    {"gather", "from the parts of a tensor to one rank", "scatter", refuse_gather, make_blocks},
    {"broadcast", "from one rank to copies on all", "sum_reduce", refuse_broadcast, make_broadcast},
    {"sum_reduce", "the sum of what ranks hold, on one of them", "broadcast", refuse_sum_reduce,
     make_sum_reduce},
    {"all_reduce", "the sum of what ranks hold, on all of them", "all_reduce", refuse_all_reduce,
     make_all_reduce},
    {"all_gather", "from the shards of a tensor to copies of it", "reduce_scatter", refuse_all_gather,
     make_blocks},
    {"reduce_scatter", "the sum of what ranks hold, sharded", "all_gather", refuse_reduce_scatter,
     make_blocks},
    {"all_to_all", "from shards along one dimension to shards along another", "all_to_all", refuse_all_to_all,
     make_blocks},
    {"repartition", "between any two layouts that are no sums", "repartition", refuse_repartition,
     make_blocks},
    {kWindows, "from shards to the windows that sharded outputs read", kWindows,
     [](const MoveSpec& spec, Grid) { return comm::refuse_windows(spec); }, comm::make_windows},
    {kNestedWindows, "the same between neighbours, dimension by dimension", kNestedWindows,
     comm::refuse_nested_windows, comm::make_nested_windows},
};

void agree(Mesh& mesh, const MoveSpec& spec, const std::string& what, std::string_view kind,
           std::string (*refusal)(const MoveSpec&, Grid)) {
  std::string problem;
  try {
    check_layout(spec.from, mesh.extents(), "before");
    check_layout(spec.to, mesh.extents(), "after");
    if (kind != kWindows && kind != kNestedWindows) problem = comm::redistribution_refusal(spec);
    if (problem.empty() && refusal != nullptr) problem = refusal(spec, mesh.extents());
  } catch (const Error& error) {
    problem = error.what();
  }
  if (!problem.empty())
    problem += fmt::format("; from {} to {}", layout_text(spec.from), layout_text(spec.to));
  std::string text = fmt::format("{} of {} from {} to {}, {} at a time", kind, dtype_name(spec.dtype),
                                 layout_text(spec.from), layout_text(spec.to), spec.flights);
  for (const auto& window : spec.windows) text += window == nullptr ? ", -" : ", " + window->text();
  mesh.agree(what, text, problem);
}

}  // namespace

std::span<const Primitive> primitives() {
  return kPrimitives;
}

const Primitive& primitive(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Primitive& one : kPrimitives) {
    if (one.name == name) return one;
    names.push_back(one.name);
  }
  fail_config(fmt::format("there is no primitive '{}'; there are {}", name, fmt::join(names, ", ")));
}

std::unique_ptr<LinearMap> make_map(Mesh& mesh, std::string_view name, const MoveSpec& spec,
                                    const std::string& what) {
  const Primitive& kind = primitive(name);
  agree(mesh, spec, what, kind.name, kind.refusal);
  return kind.make(mesh, spec);
}

std::unique_ptr<LinearMap> redistribution(Mesh& mesh, const MoveSpec& spec, const std::string& what) {
  agree(mesh, spec, what, "redistribution", nullptr);
  if (!spec.from.partial.empty() && refuse_all_reduce(spec, mesh.extents()).empty())
    return make_all_reduce(mesh, spec);
  return make_blocks(mesh, spec);
}

TENON_ABI_END
