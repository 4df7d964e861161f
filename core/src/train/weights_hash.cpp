// One parameter at a time: shards travel to the first rank of the grid, which puts them in place and hashes
// the whole.
#include "train/weights_hash.hpp"

#include "checkpoint/box.hpp"
#include "train/grid.hpp"

#include <tenon/checkpoint.hpp>

#include <cstring>
#include <numeric>

namespace tenon::train {
namespace {

/// This rank's part in host memory; `memory` backs it where the set's own memory cannot be read.
TensorView host_part(const ParameterSet& set, const ParameterInfo& info, Device& device,
                     std::vector<std::byte>& memory) {
  TensorView host;
  host.dtype = info.spec.dtype;
  host.shape = info.local;
  const TensorView view = set.tensor(info.index);
  if (view.space == MemorySpace::kHost && set.table(info.index) == nullptr) return view;
  memory.resize(static_cast<std::size_t>(host.bytes()));
  host.data = memory.data();
  if (RowTable* table = set.table(info.index)) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(info.local[0]));
    std::iota(ids.begin(), ids.end(), info.offset[0]);
    if (!ids.empty()) table->read(ids, host);
  } else {
    device.copy(view, host);
  }
  return host;
}

void place(const TensorView& part, const std::vector<std::int64_t>& offset, const TensorView& whole) {
  const Box from{Shape(std::span<const std::int64_t>(offset)), part.shape};
  const Box to{Shape(std::vector<std::int64_t>(offset.size(), 0)), whole.shape};
  const auto* bytes = static_cast<const std::byte*>(part.data);
  copy_shared(
      part.dtype, from,
      [&](std::int64_t at, std::span<std::byte> out) { std::memcpy(out.data(), bytes + at, out.size()); }, to,
      whole.raw());
}

}  // namespace

std::string logical_digests(const ParameterSet& set, Device& device, Communicator* grid,
                            const std::vector<std::int64_t>& extents) {
  StateHasher hasher;
  std::vector<std::byte> memory, whole_memory;
  const int self = grid == nullptr ? 0 : grid->rank();
  for (const ParameterInfo& info : set.parameters()) {
    TensorView part = host_part(set, info, device, memory);
    if (grid == nullptr || info.spec.sharding.empty()) {
      if (self == 0) hasher.add(info.spec.name, part);
      continue;
    }
    if (self != 0) {
      if (part.elements() > 0) grid->send(part, 0, info.index);
      continue;
    }
    TensorView whole = part;
    whole.shape = info.spec.shape;
    whole_memory.assign(static_cast<std::size_t>(whole.bytes()), std::byte{0});
    whole.data = whole_memory.data();
    if (part.elements() > 0) place(part, info.offset, whole);
    for (int member = 1; member < grid->size(); ++member) {
      const auto coordinates = grid_coordinates(member, extents);
      TensorView piece = part;
      piece.shape = local_shape(info.spec, coordinates, 0);
      if (piece.elements() == 0) continue;
      memory.resize(static_cast<std::size_t>(piece.bytes()));
      piece.data = memory.data();
      grid->receive(piece, member, info.index);
      place(piece, local_offset(info.spec, coordinates, 0), whole);
    }
    hasher.add(info.spec.name, whole);
  }
  return self == 0 ? hasher.digests() : std::string();
}

}  // namespace tenon::train
