// One parameter at a time: shards travel to the first rank of the mesh, which puts them in place and hashes
// the whole.
#include "run/weights_hash.hpp"

#include "comm/block_runs.hpp"
#include "graph/row_table.hpp"
#include "loop/update.hpp"
#include "store/box.hpp"

#include <tenon/checkpoint.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tenon::train {
namespace {

constexpr std::int64_t kRowsPerMessage = 1 << 15;

/// This rank's shard in host memory; `memory` backs it where the set's own memory cannot be read.
TensorView host_part(const ParameterSet& set, const ParameterInfo& info, Device& device,
                     std::vector<std::byte>& memory) {
  TensorView host;
  host.dtype = info.spec.dtype;
  host.shape = info.local;
  const TensorView view = set.tensor(info.index);
  if (view.space == MemorySpace::kHost && set.table(info.index) == nullptr) return view;
  memory.resize(host.bytes());
  host.data = memory.data();
  if (RowTable* table = set.table(info.index)) {
    std::vector<std::int64_t> ids(info.local[0]);
    std::iota(ids.begin(), ids.end(), info.offset[0]);
    if (!ids.empty()) table->scan(ids, host);
  } else {
    device.copy(view, host);
  }
  return host;
}

void place(const TensorView& part, const Shape& offset, const TensorView& whole) {
  const Box from{offset, part.shape};
  const Box to = comm::whole_of(whole.shape).box;
  const auto* bytes = static_cast<const std::byte*>(part.data);
  copy_shared(
      part.dtype, from,
      [&](std::int64_t at, std::span<std::byte> out) { std::memcpy(out.data(), bytes + at, out.size()); }, to,
      whole.raw());
}

/// Feeds the owned rows, then, if the table is sharded over the replicas, the rows of each in turn: they own
/// ascending ranges.
void hash_table(const RowTable& table, const ParameterInfo& info, Communicator* replicas,
                StateHasher& hasher) {
  hasher.begin(info.spec.name, info.spec.dtype, info.spec.shape);
  graph::for_each_chunk(table, [&](std::span<const std::int64_t> ids, TensorView rows) {
    table.scan(ids, rows);
    hasher.feed(rows.raw());
  });
  std::vector<std::byte> memory;
  for (int from = 1; replicas != nullptr && is_sharded(info.spec, kReplicaAxis) && from < replicas->size();
       ++from) {
    const std::int64_t rows = local_part(info.spec, {{}, {}, from}).extents[0];
    for (std::int64_t first = 0; first < rows; first += kRowsPerMessage) {
      TensorView piece;
      piece.dtype = info.spec.dtype;
      piece.shape = Shape{std::min(kRowsPerMessage, rows - first), info.spec.shape[1]};
      memory.resize(piece.bytes());
      piece.data = memory.data();
      replicas->receive(piece, from, info.index);
      hasher.feed(piece.raw());
    }
  }
  hasher.end();
}

void send_table(const RowTable& table, const ParameterInfo& info, Communicator& replicas) {
  std::vector<std::int64_t> ids;
  std::vector<std::byte> memory;
  for (std::int64_t first = table.owned_first(); first < table.owned_last(); first += kRowsPerMessage) {
    ids.resize(std::min(kRowsPerMessage, table.owned_last() - first));
    std::iota(ids.begin(), ids.end(), first);
    TensorView piece;
    piece.dtype = info.spec.dtype;
    piece.shape = Shape{static_cast<std::int64_t>(ids.size()), info.spec.shape[1]};
    memory.resize(piece.bytes());
    piece.data = memory.data();
    table.scan(ids, piece);
    replicas.send(piece, 0, info.index);
  }
}

}  // namespace

std::string logical_digests(const ParameterSet& set, Device& device, const SetLayout& layout) {
  StateHasher hasher;
  std::vector<std::byte> memory, whole_memory;
  Communicator* mesh = layout.mesh;
  const int self = mesh == nullptr ? 0 : mesh->rank();
  for (const ParameterInfo& info : set.parameters()) {
    const RowTable* table = set.table(info.index);
    const bool gathers =
        mesh != nullptr && !info.spec.sharding.empty() && !is_sharded(info.spec, kReplicaAxis);
    if (layout.replica != 0) {
      if (self == 0 && table != nullptr && is_sharded(info.spec, kReplicaAxis))
        send_table(*table, info, *layout.replicas);
      continue;
    }
    if (table != nullptr && !gathers) {
      if (self == 0) hash_table(*table, info, layout.replicas, hasher);
      continue;
    }
    TensorView part = host_part(set, info, device, memory);
    if (!gathers) {
      if (self == 0) hasher.add(info.spec.name, part);
      continue;
    }
    if (self != 0) {
      if (part.elements() > 0) mesh->send(part, 0, info.index);
      continue;
    }
    TensorView whole = part;
    whole.shape = info.spec.shape;
    whole_memory.assign(whole.bytes(), std::byte{0});
    whole.data = whole_memory.data();
    if (part.elements() > 0) place(part, info.offset, whole);
    for (int member = 1; member < mesh->size(); ++member) {
      const std::vector<int> coordinates = mesh_coordinates(member, layout.extents);
      const Box held = local_part(info.spec, {layout.extents, coordinates});
      TensorView piece = part;
      piece.shape = held.extents;
      if (piece.elements() == 0) continue;
      memory.resize(piece.bytes());
      piece.data = memory.data();
      mesh->receive(piece, member, info.index);
      place(piece, held.offset, whole);
    }
    hasher.add(info.spec.name, whole);
  }
  return self == 0 && layout.replica == 0 ? hasher.digests() : std::string();
}

}  // namespace tenon::train
