// One message per pair of ranks and direction: the pair's blocks, packed in the order of the list. A
// contiguous block that is alone in its message is sent in place. Sums are made in ascending order of
// senders: early messages wait in their buffers.
#include "comm/block_runs.hpp"
#include "moves/box_moves.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/block_exchange.hpp>
#include <tenon/sdk/fixed_order.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

TENON_ABI_BEGIN

namespace {

using comm::BoxMoves;
using comm::Room;
using comm::whole_of;
using comm::Window;

/// The blocks sent to, or received from, one other rank.
struct Parcel {
  int peer = 0;
  std::vector<Window> windows;
  std::int64_t at = 0, elements = 0;  ///< in the buffer
  std::int64_t in_place = -1;         ///< first element in the tensor, if nothing needs packing
};

/// The blocks of one direction.
struct Way {
  Shape in, out;
  std::vector<Parcel> sends, receives;           ///< by peer, ascending
  std::vector<std::pair<Window, Window>> stays;  ///< in, out
  std::int64_t send_elements = 0, receive_elements = 0;
  bool disjoint = true;  ///< no element of out is reached twice
  bool covers = true;    ///< every element of out is reached
  /// If both are one tensor: no element that is read is written.
  bool apart = true;
};

std::vector<Parcel> parcels(const std::map<int, std::vector<Window>>& by_peer, std::int64_t& elements) {
  std::vector<Parcel> all;
  for (const auto& [peer, windows] : by_peer) {
    Parcel parcel{.peer = peer, .windows = windows, .at = elements};
    for (const Window& window : windows) parcel.elements += window.box.elements();
    if (windows.size() == 1) parcel.in_place = comm::contiguous_at(windows.front());
    elements += parcel.elements;
    all.push_back(std::move(parcel));
  }
  return all;
}

void look_at_boxes(Way& way) {
  std::vector<Box> boxes;
  for (const auto& entry : way.stays) boxes.push_back(entry.second.box);
  for (const Parcel& parcel : way.receives)
    for (const Window& window : parcel.windows) boxes.push_back(window.box);
  std::int64_t reached = 0;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    reached += boxes[i].elements();
    for (std::size_t j = 0; j < i && way.disjoint; ++j)
      way.disjoint = intersection(boxes[i], boxes[j]).elements() == 0;
  }
  way.covers = way.disjoint && reached == way.out.elements();
  way.apart = way.in == way.out;
  const auto look_at_source = [&](const Box& source) {
    for (const Box& target : boxes) way.apart = way.apart && intersection(source, target).elements() == 0;
  };
  for (const auto& entry : way.stays) look_at_source(entry.first.box);
  for (const Parcel& parcel : way.sends)
    for (const Window& window : parcel.windows) look_at_source(window.box);
}

Way make_way(const ExchangeSpec& spec, int self, Direction direction) {
  const bool forward = direction == Direction::kForward;
  Way way;
  way.in = forward ? spec.source : spec.target;
  way.out = forward ? spec.target : spec.source;
  std::map<int, std::vector<Window>> sends, receives;
  for (const Block& block : spec.blocks) {
    const int sender = forward ? block.sender : block.receiver;
    const int receiver = forward ? block.receiver : block.sender;
    const Window from{way.in, forward ? block.from : block.to}, to{way.out, forward ? block.to : block.from};
    if (sender == self && receiver == self) {
      way.stays.emplace_back(from, to);
    } else if (sender == self) {
      sends[receiver].push_back(from);
    } else if (receiver == self) {
      receives[sender].push_back(to);
    }
  }
  way.sends = parcels(sends, way.send_elements);
  way.receives = parcels(receives, way.receive_elements);
  look_at_boxes(way);
  return way;
}

void check_block(const ExchangeSpec& spec, const Block& block, int self) {
  const auto fits = [](const Box& box, const Shape& shape) {
    if (box.offset.rank() != shape.rank()) return false;
    for (int dim = 0; dim < shape.rank(); ++dim)
      if (box.offset[dim] < 0 || box.end(dim) > shape[dim]) return false;
    return true;
  };
  if (!(block.from.extents == block.to.extents) || block.from.elements() == 0 ||
      (block.sender == self && !fits(block.from, spec.source)) ||
      (block.receiver == self && !fits(block.to, spec.target))) {
    fail_run(fmt::format("exchange of blocks: {} at {} of {} does not go to {} at {} of {}",
                         block.from.extents.text(), block.from.offset.text(), spec.source.text(),
                         block.to.extents.text(), block.to.offset.text(), spec.target.text()));
  }
}

}  // namespace

struct BlockExchange::State {
  /// A started run of the exchange; its memory is kept.
  struct Slot {
    bool busy = false;
    const Way* way = nullptr;
    TensorView in, out;
    bool accumulate = false;
    Room sent, received;
    std::vector<Request> sends, receives;
  };

  std::byte* element(const TensorView& view, std::int64_t index) const {
    return static_cast<std::byte*>(view.data) + index * item;
  }
  TensorView message(std::byte* data, const Parcel& parcel) const {
    return {data, Shape{parcel.elements}, spec.dtype, moves.space()};
  }
  bool arrives_in_place(const Slot& slot, const Parcel& parcel) const {
    return parcel.in_place >= 0 && slot.way->disjoint && !slot.accumulate;
  }
  void clear(const Slot& slot, Deposit deposit) const;
  void pack(Slot& slot, const Parcel& parcel) const;
  void stay(const Slot& slot, bool add) const;
  void unpack(Slot& slot, const Parcel& parcel, bool add) const;

  Mesh& mesh;
  BoxMoves moves;
  ExchangeSpec spec;
  std::int64_t item = 1;
  int tag = 0;
  Way forward = {}, transpose = {};
  std::vector<Slot> slots = {};
};

void BlockExchange::State::clear(const Slot& slot, Deposit deposit) const {
  std::byte* const out = element(slot.out, 0);
  if (deposit == Deposit::kAssign && !slot.way->covers) {
    moves.clear(out, whole_of(slot.way->out));
    return;
  }
  if (slot.way->disjoint || deposit == Deposit::kAdd) return;
  for (const auto& entry : slot.way->stays) moves.clear(out, entry.second);
  for (const Parcel& parcel : slot.way->receives)
    for (const Window& window : parcel.windows) moves.clear(out, window);
}

void BlockExchange::State::pack(Slot& slot, const Parcel& parcel) const {
  std::byte* to = slot.sent.data() + parcel.at * item;
  for (const Window& window : parcel.windows) {
    moves.put(element(slot.in, 0), window, to, whole_of(window.box.extents), false);
    to += window.box.elements() * item;
  }
}

void BlockExchange::State::stay(const Slot& slot, bool add) const {
  for (const auto& [from, to] : slot.way->stays)
    moves.put(element(slot.in, 0), from, element(slot.out, 0), to, add);
}

void BlockExchange::State::unpack(Slot& slot, const Parcel& parcel, bool add) const {
  const std::byte* from = slot.received.data() + parcel.at * item;
  for (const Window& window : parcel.windows) {
    moves.put(from, whole_of(window.box.extents), element(slot.out, 0), window, add);
    from += window.box.elements() * item;
  }
}

BlockExchange::BlockExchange(Mesh& mesh, ExchangeSpec spec, int flights)
    : state_(new State{.mesh = mesh, .moves = {spec.device, spec.dtype}, .spec = std::move(spec)}) {
  State& s = *state_;
  const int self = mesh.index();
  for (const Block& block : s.spec.blocks) check_block(s.spec, block, self);
  s.item = dtype_bytes(s.spec.dtype, 1);
  s.tag = mesh.next_tag();
  s.forward = make_way(s.spec, self, Direction::kForward);
  s.transpose = make_way(s.spec, self, Direction::kTranspose);
  if (!s.forward.disjoint || !s.transpose.disjoint) check_reducible(s.spec.dtype, ReduceOp::kSum);
  s.slots.resize(flights);
  // Each direction receives what the other one sends.
  const std::size_t bytes = std::max(s.forward.send_elements, s.forward.receive_elements) * s.item;
  const std::size_t parcels = std::max(s.forward.sends.size(), s.forward.receives.size());
  for (State::Slot& slot : s.slots) {
    slot.sent = Room(s.moves.device(), bytes), slot.received = Room(s.moves.device(), bytes);
    slot.sends.reserve(parcels), slot.receives.reserve(parcels);
  }
}

BlockExchange::~BlockExchange() = default;

const ExchangeSpec& BlockExchange::spec() const noexcept {
  return state_->spec;
}

Flight BlockExchange::start(Direction direction, TensorView in, TensorView out, Deposit deposit) {
  State& s = *state_;
  const auto found =
      std::find_if(s.slots.begin(), s.slots.end(), [](const auto& slot) { return !slot.busy; });
  if (found == s.slots.end()) fail_run(comm::all_under_way(s.slots.size()));
  State::Slot& slot = *found;
  slot.way = direction == Direction::kForward ? &s.forward : &s.transpose;
  if (!(in.shape == slot.way->in) || !(out.shape == slot.way->out) || in.dtype != s.spec.dtype ||
      out.dtype != s.spec.dtype) {
    fail_run(fmt::format("exchange of blocks: planned from {} {} to {}, called from {} {} to {} {}",
                         dtype_name(s.spec.dtype), slot.way->in.text(), slot.way->out.text(),
                         dtype_name(in.dtype), in.shape.text(), dtype_name(out.dtype), out.shape.text()));
  }
  if ((in.space != s.moves.space() && !in.empty()) || (out.space != s.moves.space() && !out.empty())) {
    fail_run(
        "exchange of blocks: planned for tensors in other memory than the one it was called with; the device "
        "of the plan is whose memory both lie in");
  }
  if (in.data == out.data && in.elements() > 0 && (deposit == Deposit::kAssign || !slot.way->apart)) {
    fail_run(
        "exchange of blocks: called with one tensor for both sides, which takes kFill or kAdd and blocks "
        "that "
        "are put beside those that are taken; use two tensors");
  }
  slot.busy = true;
  slot.in = in, slot.out = out, slot.accumulate = deposit == Deposit::kAdd;
  slot.sends.clear(), slot.receives.clear();
  s.clear(slot, deposit);
  Communicator* all = s.mesh.all();
  for (const Parcel& parcel : slot.way->receives) {
    std::byte* to = s.arrives_in_place(slot, parcel) ? s.element(out, parcel.in_place)
                                                     : slot.received.data() + parcel.at * s.item;
    slot.receives.push_back(all->start_receive(s.message(to, parcel), parcel.peer, s.tag));
  }
  for (const Parcel& parcel : slot.way->sends) {
    std::byte* from = slot.sent.data() + parcel.at * s.item;
    if (parcel.in_place >= 0) {
      from = s.element(in, parcel.in_place);
    } else {
      s.pack(slot, parcel);
    }
    slot.sends.push_back(all->start_send(s.message(from, parcel), parcel.peer, s.tag));
  }
  if (slot.way->disjoint) s.stay(slot, slot.accumulate);
  return {static_cast<int>(found - s.slots.begin())};
}

void BlockExchange::finish(Flight flight) {
  State& s = *state_;
  State::Slot& slot = s.slots.at(flight.slot);
  const bool add = slot.accumulate || !slot.way->disjoint;
  bool stayed = slot.way->disjoint;
  for (std::size_t i = 0; i < slot.receives.size(); ++i) {
    const Parcel& parcel = slot.way->receives[i];
    if (!stayed && parcel.peer > s.mesh.index()) {
      s.stay(slot, add);
      stayed = true;
    }
    s.mesh.all()->wait(slot.receives[i]);
    if (!s.arrives_in_place(slot, parcel)) s.unpack(slot, parcel, add);
  }
  if (!stayed) s.stay(slot, add);
  for (const Request& request : slot.sends) s.mesh.all()->wait(request);
  slot.busy = false;
}

std::int64_t BlockExchange::bytes_sent(Direction direction) const noexcept {
  const Way& way = direction == Direction::kForward ? state_->forward : state_->transpose;
  return way.send_elements * state_->item;
}

TENON_ABI_END
