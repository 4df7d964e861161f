// Maps as one exchange of blocks, or as two through pieces of the tensor: a broadcast scatters and gathers,
// an all-reduce sums pieces and gathers them, so that no rank sends more than twice the tensor.
#include "comm/linear_map.hpp"

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
      exchange_(grid, {spec.dtype, domain_, range_, std::move(blocks)}, spec.flights) {}

TwoStepMap::TwoStepMap(ModelGrid& grid, const MoveSpec& spec, const std::vector<int>& members, int root)
    : MapBase(grid, spec), dtype_(spec.dtype) {
  const std::int64_t line = range_.elements();
  const auto offsets = balanced_offsets(line, static_cast<int>(members.size()));
  std::vector<Block> first, second;
  for (std::size_t j = 0; j < members.size(); ++j) {
    const std::int64_t begin = offsets[j], count = offsets[j + 1] - begin;
    if (members[j] == grid.index()) piece_ = Shape{count};
    for (const int sender : members) {
      if (root < 0 || sender == root) add_piece(first, sender, members[j], begin, 0, count);
    }
    for (const int receiver : members) add_piece(second, members[j], receiver, 0, begin, count);
  }
  first_ = std::make_unique<BlockExchange>(
      grid, ExchangeSpec{dtype_, flat(domain_), piece_, std::move(first)}, spec.flights);
  second_ = std::make_unique<BlockExchange>(
      grid, ExchangeSpec{dtype_, piece_, flat(range_), std::move(second)}, spec.flights);
  for (int slot = 0; slot < spec.flights; ++slot) {
    slots_.emplace_back();
    slots_.back().piece.resize(static_cast<std::size_t>(dtype_bytes(dtype_, piece_.elements())));
  }
}

Flight TwoStepMap::start(Direction direction, TensorView in, TensorView out, bool accumulate) {
  BlockExchange& exchange = direction == Direction::kForward ? *first_ : *second_;
  const TensorView flat_in = in.reshaped(flat(in.shape));
  const auto found = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.busy; });
  if (found == slots_.end()) fail_run(all_under_way(slots_.size()));
  Slot& slot = *found;
  const TensorView piece{slot.piece.data(), piece_, dtype_, MemorySpace::kHost};
  slot.flight = exchange.start(direction, flat_in, piece, Deposit::kAssign);
  slot.busy = true, slot.direction = direction, slot.out = out.reshaped(flat(out.shape)),
  slot.accumulate = accumulate;
  return {static_cast<int>(found - slots_.begin())};
}

void TwoStepMap::finish(Flight flight) {
  Slot& slot = slots_.at(static_cast<std::size_t>(flight.slot));
  const bool forward = slot.direction == Direction::kForward;
  (forward ? *first_ : *second_).finish(slot.flight);
  const TensorView piece{slot.piece.data(), piece_, dtype_, MemorySpace::kHost};
  (forward ? *second_ : *first_)
      .run(slot.direction, piece, slot.out, slot.accumulate ? Deposit::kAdd : Deposit::kAssign);
  slot.busy = false;
}

std::int64_t TwoStepMap::bytes_sent(Direction direction) const {
  return first_->bytes_sent(direction) + second_->bytes_sent(direction);
}

}  // namespace tenon::comm
