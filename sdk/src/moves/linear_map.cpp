// Maps made of one exchange of blocks, or of a chain of them: a broadcast scatters pieces and gathers them,
// an all-reduce sums pieces and gathers them.
#include "moves/linear_map.hpp"

#include "comm/block_runs.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/linear_map.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

TENON_ABI_BEGIN

LinearMap::~LinearMap() = default;

TENON_ABI_END

namespace tenon::comm {

namespace {

Shape flat(const Shape& shape) {
  return Shape{shape.elements()};
}

/// Blocks of a line of elements: [begin, end) of it, at `from` of the sender's tensor and `to` of the
/// receiver's.
void add_piece(std::vector<Block>& blocks, int sender, int receiver, std::int64_t from, std::int64_t to,
               std::int64_t count) {
  if (count > 0) blocks.push_back({sender, receiver, {{from}, {count}}, {{to}, {count}}});
}

}  // namespace

BlockMap::BlockMap(Mesh& mesh, const MoveSpec& spec, std::vector<Block> blocks)
    : BlockMap(mesh, spec, part_of(spec.to, mesh.place()).extents, std::move(blocks)) {}

BlockMap::BlockMap(Mesh& mesh, const MoveSpec& spec, const Shape& range, std::vector<Block> blocks)
    : MapBase(part_of(spec.from, mesh.place()).extents, range),
      exchange_(mesh, {spec.dtype, domain_, range_, std::move(blocks), spec.device}, spec.flights) {}

ChainMap::ChainMap(Mesh& mesh, const MoveSpec& spec, const Shape& range, std::vector<ExchangeSpec> steps)
    : MapBase(part_of(spec.from, mesh.place()).extents, range),
      moves_(spec.device, spec.dtype),
      slots_(spec.flights) {
  for (ExchangeSpec& step : steps) {
    step.device = spec.device;
    steps_.push_back(std::make_unique<BlockExchange>(mesh, std::move(step), spec.flights));
  }
  for (Slot& slot : slots_) {
    for (std::size_t nth = 0; nth + 1 < steps_.size(); ++nth) {
      const std::int64_t elements = steps_[nth]->spec().target.elements();
      slot.between.emplace_back(moves_.device(), static_cast<std::size_t>(dtype_bytes(spec.dtype, elements)));
    }
  }
}

BlockExchange& ChainMap::step(Direction direction, std::size_t nth) const {
  return *steps_[direction == Direction::kForward ? nth : steps_.size() - 1 - nth];
}

TensorView ChainMap::written(Slot& slot, std::size_t nth) const {
  const bool forward = slot.direction == Direction::kForward;
  const ExchangeSpec& spec = step(slot.direction, nth).spec();
  const Shape& shape = forward ? spec.target : spec.source;
  if (nth + 1 == steps_.size()) return slot.out.reshaped(shape);
  Room& memory = slot.between[forward ? nth : slot.between.size() - 1 - nth];
  return {memory.data(), shape, spec.dtype, moves_.space()};
}

Deposit ChainMap::deposit(const Slot& slot, std::size_t nth) const {
  return slot.accumulate && nth + 1 == steps_.size() ? Deposit::kAdd : Deposit::kAssign;
}

Flight ChainMap::start(Direction direction, TensorView in, TensorView out, bool accumulate) {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.busy; });
  if (found == slots_.end()) fail_run(all_under_way(slots_.size()));
  Slot& slot = *found;
  slot.out = out, slot.direction = direction, slot.accumulate = accumulate;
  BlockExchange& first = step(direction, 0);
  const Shape& read = direction == Direction::kForward ? first.spec().source : first.spec().target;
  slot.flight = first.start(direction, in.reshaped(read), written(slot, 0), deposit(slot, 0));
  slot.busy = true;
  return {static_cast<int>(found - slots_.begin())};
}

void ChainMap::finish(Flight flight) {
  Slot& slot = slots_.at(flight.slot);
  step(slot.direction, 0).finish(slot.flight);
  for (std::size_t nth = 1; nth < steps_.size(); ++nth) {
    step(slot.direction, nth)
        .run(slot.direction, written(slot, nth - 1), written(slot, nth), deposit(slot, nth));
  }
  slot.busy = false;
}

std::int64_t ChainMap::bytes_sent(Direction direction) const {
  std::int64_t bytes = 0;
  for (const auto& one : steps_) bytes += one->bytes_sent(direction);
  return bytes;
}

std::unique_ptr<LinearMap> make_through_pieces(Mesh& mesh, const MoveSpec& spec,
                                               const std::vector<int>& members, int root) {
  const Box own = part_of(spec.from, mesh.place()), made = part_of(spec.to, mesh.place());
  const Shape whole = flat(made.extents);
  const auto offsets = balanced_offsets(whole.elements(), static_cast<int>(members.size()));
  Shape piece{0};
  std::vector<Block> first, second;
  for (std::size_t j = 0; j < members.size(); ++j) {
    const std::int64_t begin = offsets[j], count = offsets[j + 1] - begin;
    if (members[j] == mesh.index()) piece = Shape{count};
    for (const int sender : members) {
      if (root < 0 || sender == root) add_piece(first, sender, members[j], begin, 0, count);
    }
    for (const int receiver : members) add_piece(second, members[j], receiver, 0, begin, count);
  }
  std::vector<ExchangeSpec> steps;
  steps.push_back({spec.dtype, flat(own.extents), piece, std::move(first)});
  steps.push_back({spec.dtype, piece, whole, std::move(second)});
  return std::make_unique<ChainMap>(mesh, spec, made.extents, std::move(steps));
}

// The blocks that move between two layouts.

namespace {

bool has(const std::vector<int>& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

enum class Along : std::uint8_t { kSharded, kSum, kCopies };

std::vector<Along> placements(const Layout& layout, std::size_t axes) {
  std::vector<Along> along(axes, Along::kCopies);
  for (const DimSharding& sharding : layout.sharding)
    for (const int axis : sharding.axes) along[axis] = Along::kSharded;
  for (const int axis : layout.partial) along[axis] = Along::kSum;
  return along;
}

}  // namespace

std::vector<int> copied_axes(const Layout& layout, std::span<const int> mesh) {
  const std::vector<Along> along = placements(layout, mesh.size());
  std::vector<int> axes;
  for (std::size_t axis = 0; axis < mesh.size(); ++axis)
    if (along[axis] == Along::kCopies && mesh[axis] > 1) axes.push_back(static_cast<int>(axis));
  return axes;
}

std::vector<int> ranks_along(int index, const std::vector<int>& axes, std::span<const int> mesh) {
  const std::vector<int> self = mesh_coordinates(index, mesh);
  std::vector<int> members;
  int ranks = 1;
  for (const int extent : mesh) ranks *= extent;
  for (int r = 0; r < ranks; ++r) {
    const std::vector<int> there = mesh_coordinates(r, mesh);
    bool same = true;
    for (std::size_t axis = 0; axis < mesh.size(); ++axis)
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
      return fmt::format("what is no sum over axis {} of the mesh does not become one", axis);
  }
  return "";
}

std::vector<Block> blocks_between(const Mesh& mesh, const Layout& from, const std::vector<int>& kept_sums,
                                  const std::function<Need(const MeshPlace&)>& need_of) {
  const std::span<const int> extents = mesh.extents();
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
    const std::vector<int> at = mesh_coordinates(sender, extents),
                           there = mesh_coordinates(receiver, extents);
    if (!sends(at, there)) return;
    const Box own = part_of(from, {extents, at});
    const Need need = need_of({extents, there});
    const Box shared = intersection(own, need.box);
    if (shared.elements() > 0) {
      blocks.push_back({sender, receiver, relative(shared, own.offset), relative(shared, need.origin)});
    }
  };
  for (int other = 0; other < mesh.size(); ++other) {
    add(mesh.index(), other);
    if (other != mesh.index()) add(other, mesh.index());
  }
  return blocks;
}

std::vector<Block> redistribution_blocks(const Mesh& mesh, const Layout& from, const Layout& to) {
  return blocks_between(mesh, from, to.partial, [&](const MeshPlace& place) {
    const Box need = part_of(to, place);
    return Need{need, need.offset};
  });
}

}  // namespace tenon::comm

// Index maps of windows, their gradients and interpolations, and the window that one rank derives from a map.

TENON_ABI_BEGIN

namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return -floor_div(-a, b);
}

std::string sliding_text(const Sliding& w) {
  return fmt::format("kernel {} stride {} dilation {} pads {} {}", w.kernel, w.stride, w.dilation, w.pad_low,
                     w.pad_high);
}

class SlidingMap final : public IndexMap {
 public:
  explicit SlidingMap(const Sliding& window) : w_(window) {}
  ElementRange inputs(ElementRange outputs) const override {
    return {w_.stride * outputs.begin - w_.pad_low,
            w_.stride * (outputs.end - 1) - w_.pad_low + w_.dilation * (w_.kernel - 1) + 1};
  }
  std::string text() const override { return "window of " + sliding_text(w_); }

 private:
  Sliding w_;
};

class SlidingGradientMap final : public IndexMap {
 public:
  SlidingGradientMap(const Sliding& window, std::int64_t outputs) : w_(window), outputs_(outputs) {}
  ElementRange inputs(ElementRange of) const override {
    const std::int64_t reach = w_.dilation * (w_.kernel - 1);
    const std::int64_t low = std::max<std::int64_t>(0, ceil_div(of.begin + w_.pad_low - reach, w_.stride));
    const std::int64_t high = std::min(outputs_ - 1, floor_div(of.end - 1 + w_.pad_low, w_.stride));
    return low > high ? ElementRange{} : ElementRange{low, high + 1};
  }
  std::string text() const override {
    return fmt::format("gradient of {} over {}", sliding_text(w_), outputs_);
  }

 private:
  Sliding w_;
  std::int64_t outputs_;
};

class InterpolationMap final : public IndexMap {
 public:
  InterpolationMap(Interpolation kind, std::int64_t inputs, std::int64_t outputs)
      : kind_(kind), inputs_(inputs), outputs_(outputs) {}
  ElementRange inputs(ElementRange outputs) const override {
    return {first(outputs.begin), std::min(inputs_, last(outputs.end - 1) + 1)};
  }
  std::string text() const override {
    return fmt::format("interpolation {} of {} to {}", static_cast<int>(kind_), inputs_, outputs_);
  }

 private:
  /// Exact in integers, so that all ranks and the kernels agree at every boundary.
  std::int64_t first(std::int64_t j) const {
    if (kind_ == Interpolation::kNearest) return j * inputs_ / outputs_;
    if (kind_ == Interpolation::kLinearAligned) return outputs_ == 1 ? 0 : j * (inputs_ - 1) / (outputs_ - 1);
    return std::max<std::int64_t>(0, floor_div((2 * j + 1) * inputs_ - outputs_, 2 * outputs_));
  }
  std::int64_t last(std::int64_t j) const {
    return kind_ == Interpolation::kNearest ? first(j) : std::min(inputs_ - 1, first(j) + 1);
  }

  Interpolation kind_;
  std::int64_t inputs_, outputs_;
};

}  // namespace

IndexMap::~IndexMap() = default;

std::int64_t Sliding::outputs(std::int64_t inputs) const noexcept {
  const std::int64_t room = inputs + pad_low + pad_high - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

std::shared_ptr<const IndexMap> sliding_map(const Sliding& window) {
  return std::make_shared<SlidingMap>(window);
}
std::shared_ptr<const IndexMap> sliding_gradient_map(const Sliding& window, std::int64_t outputs) {
  return std::make_shared<SlidingGradientMap>(window, outputs);
}
std::shared_ptr<const IndexMap> interpolation_map(Interpolation kind, std::int64_t inputs,
                                                  std::int64_t outputs) {
  return std::make_shared<InterpolationMap>(kind, inputs, outputs);
}

DimWindow dim_window(const IndexMap* map, ElementRange own, ElementRange outputs, std::int64_t inputs) {
  DimWindow window;
  window.need = window.wanted = {own.begin, own.begin};
  if (outputs.size() > 0) {
    const ElementRange wanted = map == nullptr ? outputs : map->inputs(outputs);
    if (wanted.size() > 0) {
      window.wanted = wanted;
      const std::int64_t low = std::clamp<std::int64_t>(wanted.begin, 0, inputs);
      window.need = {low, std::clamp(wanted.end, low, inputs)};
      window.pad_low = std::max<std::int64_t>(0, std::min<std::int64_t>(wanted.end, 0) - wanted.begin);
      window.pad_high = std::max<std::int64_t>(0, wanted.end - std::max(wanted.begin, inputs));
      // Pads alone: nothing is needed from other ranks.
      if (window.need.size() == 0) window.need = {own.begin, own.begin};
    }
  }
  window.halo_low = own.begin - window.need.begin;
  window.halo_high = window.need.end - own.end;
  return window;
}

TENON_ABI_END
