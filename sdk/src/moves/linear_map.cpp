// Maps made of one exchange of blocks, or of a chain of them: a broadcast scatters pieces and gathers them,
// an all-reduce sums pieces and gathers them.
#include "moves/linear_map.hpp"

#include "comm/block_runs.hpp"

#include <tenon/error.hpp>

#include <algorithm>

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

BlockMap::BlockMap(ModelGrid& grid, const MoveSpec& spec, std::vector<Block> blocks)
    : BlockMap(grid, spec, part_of(spec.to, grid.place()).extents, std::move(blocks)) {}

BlockMap::BlockMap(ModelGrid& grid, const MoveSpec& spec, const Shape& range, std::vector<Block> blocks)
    : MapBase(part_of(spec.from, grid.place()).extents, range),
      exchange_(grid, {spec.dtype, domain_, range_, std::move(blocks), spec.device}, spec.flights) {}

ChainMap::ChainMap(ModelGrid& grid, const MoveSpec& spec, const Shape& range, std::vector<ExchangeSpec> steps)
    : MapBase(part_of(spec.from, grid.place()).extents, range),
      moves_(spec.device, spec.dtype),
      slots_(static_cast<std::size_t>(spec.flights)) {
  for (ExchangeSpec& step : steps) {
    step.device = spec.device;
    steps_.push_back(std::make_unique<BlockExchange>(grid, std::move(step), spec.flights));
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
  Slot& slot = slots_.at(static_cast<std::size_t>(flight.slot));
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

std::unique_ptr<LinearMap> make_through_pieces(ModelGrid& grid, const MoveSpec& spec,
                                               const std::vector<int>& members, int root) {
  const Box own = part_of(spec.from, grid.place()), made = part_of(spec.to, grid.place());
  const Shape whole = flat(made.extents);
  const auto offsets = balanced_offsets(whole.elements(), static_cast<int>(members.size()));
  Shape piece{0};
  std::vector<Block> first, second;
  for (std::size_t j = 0; j < members.size(); ++j) {
    const std::int64_t begin = offsets[j], count = offsets[j + 1] - begin;
    if (members[j] == grid.index()) piece = Shape{count};
    for (const int sender : members) {
      if (root < 0 || sender == root) add_piece(first, sender, members[j], begin, 0, count);
    }
    for (const int receiver : members) add_piece(second, members[j], receiver, 0, begin, count);
  }
  std::vector<ExchangeSpec> steps;
  steps.push_back({spec.dtype, flat(own.extents), piece, std::move(first)});
  steps.push_back({spec.dtype, piece, whole, std::move(second)});
  return std::make_unique<ChainMap>(grid, spec, made.extents, std::move(steps));
}

}  // namespace tenon::comm
