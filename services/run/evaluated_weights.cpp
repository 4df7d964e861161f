// Reading names from checkpoints. Hashing takes one parameter at a time: shards travel to the first rank of
// the mesh, which puts them in place and hashes the whole.
#include "run/evaluated_weights.hpp"

#include "comm/block_runs.hpp"
#include "graph/parameter_set.hpp"
#include "loop/update.hpp"
#include "store/box.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

namespace tenon::train {
namespace {

constexpr std::string_view kShared = "model/";

bool holds(const CheckpointReader& reader, std::string_view prefix) {
  return std::ranges::any_of(reader.tensors(),
                             [&](const TensorSpec& tensor) { return tensor.name.starts_with(prefix); });
}

}  // namespace

std::string evaluated_key(int replica) {
  return fmt::format("evaluated/replica{}", replica);
}

std::string StoredWeights::tensor(std::string_view parameter) const {
  for (const std::string_view prefix : {std::string_view(prefix_), std::string_view(own_), kShared}) {
    std::string name = std::string(prefix).append(parameter);
    if (reader_->find(name) != nullptr) return name;
  }
  return prefix_ + std::string(parameter);
}

std::vector<std::string> StoredWeights::parameters() const {
  std::set<std::string> names;
  for (const TensorSpec& tensor : reader_->tensors()) {
    for (const std::string_view prefix : {std::string_view(own_), kShared}) {
      if (tensor.name.starts_with(prefix)) names.insert(tensor.name.substr(prefix.size()));
    }
  }
  return {names.begin(), names.end()};
}

std::vector<StoredWeights> stored_weights(const CheckpointReader& reader, std::string& doubt) {
  std::vector<StoredWeights> found;
  for (int replica = 0;; ++replica) {
    const std::string mine = fmt::format("replica{}/", replica);
    std::string own = mine + "model/";
    const std::string* recorded = reader.meta(evaluated_key(replica));
    if (recorded == nullptr && !holds(reader, own)) break;
    if (!holds(reader, own)) own = kShared;
    if (recorded == nullptr && holds(reader, mine + "sync.")) {
      doubt = fmt::format(
          "checkpoint step-{} does not say which weights its strategy evaluates (an earlier version wrote "
          "it), and the strategy keeps some of its own: these are the weights that replica 0 trains on, "
          "which may be others than those of val/loss and weights_hash",
          reader.step());
    } else if (recorded != nullptr && recorded->empty()) {
      doubt = fmt::format(
          "checkpoint step-{} does not hold the weights that its strategy evaluates: these are the weights "
          "that replica 0 trains on, which may be others than those of val/loss and weights_hash",
          reader.step());
    }
    found.emplace_back(reader, recorded == nullptr || recorded->empty() ? own : *recorded, own);
  }
  if (found.empty() && holds(reader, kShared))
    found.emplace_back(reader, std::string(kShared), std::string(kShared));
  if (found.empty() || found.front().parameters().empty())
    fail_run(fmt::format("checkpoint step-{} holds no weights: no tensor is named model/...", reader.step()));
  return found;
}

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
    if (!ids.empty()) table->read(ids, host);
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
    table.read(ids, rows);
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
    table.read(ids, piece);
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
