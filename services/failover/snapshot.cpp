// Copies of a rank's state (snapshot.hpp).
#include "failover/snapshot.hpp"

#include "base/elapsed.hpp"
#include "control/control_wire.hpp"
#include "graph/row_table.hpp"
#include "loop/row_protocol.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace tenon::train {
namespace {

/// Texts of a packed state before names and values.
constexpr std::size_t kPackedHead = 4;

TensorView host_view(const TensorView& view, std::vector<std::byte>& memory) {
  TensorView host = view;
  host.space = MemorySpace::kHost;
  host.data = memory.data();
  return host;
}

void copy_out(const RankState& state, const TensorView& from, std::vector<std::byte>& to) {
  to.resize(from.bytes());
  if (!to.empty()) state.members().parts->device->copy(from, host_view(from, to));
}

void copy_in(const RankState& state, std::vector<std::byte>& from, const TensorView& to) {
  if (!from.empty()) state.members().parts->device->copy(host_view(to, from), to);
}

void collect(const RankState& state, StateCollector& collected, HeldComponents& into) {
  for (auto& [name, text] : collected.scalars) into.scalars.insert_or_assign(name, std::move(text));
  for (const auto& [name, view] : collected.tensors) copy_out(state, view, into.tensors[name]);
}

/// Entries of the model's buffers: other sets go by the same parameters.
void for_each_buffer(const RankState& state, const std::function<void(const StateEntry&)>& body) {
  const ParameterSet& live = state.members().weights->live();
  for (const StateEntry& entry : state.entries()) {
    if (entry.table != nullptr || entry.parameter < 0) continue;
    const ParameterInfo& info = live.parameters()[entry.parameter];
    if (info.spec.role == Role::kBuffer && entry.view.data == live.tensor(entry.parameter).data) body(entry);
  }
}

}  // namespace

const std::string* HeldComponents::scalar(const std::string& name) {
  const auto found = scalars.find(name);
  return found == scalars.end() ? nullptr : &found->second;
}

void HeldComponents::tensor(const std::string& name, TensorView out) {
  const auto found = tensors.find(name);
  if (found == tensors.end() || found->second.size() != static_cast<std::size_t>(out.bytes())) {
    fail_run(
        fmt::format("state '{}' that a rank held has {} bytes, expected {}: components must keep the same "
                    "tensors when they are built again",
                    name, found == tensors.end() ? 0 : found->second.size(), out.bytes()));
  }
  if (!found->second.empty()) std::memcpy(out.data, found->second.data(), found->second.size());
}

HeldComponents held_recovery(const RankState& state) {
  HeldComponents held;
  StateCollector collected;
  state.visit_recovery(collected);
  collect(state, collected, held);
  return held;
}

void give_back_recovery(const RankState& state, HeldComponents held) {
  StateRestorer restorer(held);
  state.visit_recovery(restorer);
}

void mark_slot(const RankState& state, std::int64_t slot, SlotMark& mark) {
  mark.slot = slot;
  StateCollector collected;
  state.visit_step(collected);
  collect(state, collected, mark.components);
  const ParameterSet& live = state.members().weights->live();
  for (const ParameterInfo& info : live.parameters()) {
    if (info.spec.role == Role::kBuffer && !live.tensor(info.index).empty())
      copy_out(state, live.tensor(info.index), mark.buffers[info.index]);
  }
}

Snapshot take_snapshot(const RankState& state, const SlotMark* mark) {
  Snapshot held;
  for (const StateEntry& entry : state.entries()) {
    std::vector<std::byte>& copy = held.entries[entry.name];
    if (entry.table == nullptr) {
      copy_out(state, entry.view, copy);
      continue;
    }
    graph::for_each_chunk(*entry.table, [&](std::span<const std::int64_t> ids, TensorView rows) {
      entry.table->scan(ids, rows);
      copy.insert(copy.end(), rows.raw().begin(), rows.raw().end());
    });
  }
  StateCollector collected;
  state.visit(collected);
  state.visit_lines(collected);
  collect(state, collected, held.components);
  if (mark != nullptr) {
    for (const auto& [name, text] : mark->components.scalars) held.components.scalars[name] = text;
    for (const auto& [name, bytes] : mark->components.tensors) held.components.tensors[name] = bytes;
    for_each_buffer(state, [&](const StateEntry& entry) {
      held.entries[entry.name] = mark->buffers.at(entry.parameter);
    });
  }
  held.slot = state.members().counters->slot;
  held.since_s = base::steady_seconds();
  return held;
}

void give_back(const RankState& state, Snapshot& held) {
  for (const StateEntry& entry : state.entries()) {
    const auto found = held.entries.find(entry.name);
    if (found == held.entries.end())
      fail_run(fmt::format("tensor '{}' is not in the state that this rank held", entry.name));
    std::vector<std::byte>& bytes = found->second;
    if (entry.table == nullptr) {
      copy_in(state, bytes, entry.view);
      continue;
    }
    std::size_t used = 0;
    graph::for_each_chunk(*entry.table, [&](std::span<const std::int64_t> ids, TensorView rows) {
      std::memcpy(rows.raw().data(), bytes.data() + used, rows.raw().size());
      used += rows.raw().size();
      entry.table->fill(ids, rows);
    });
  }
  StateRestorer restorer(held.components);
  state.visit(restorer);
  state.visit_lines(restorer);
  state.members().weights->live().touch(-1);
}

void give_back_buffers(const RankState& state, Snapshot& held) {
  for_each_buffer(state,
                  [&](const StateEntry& entry) { copy_in(state, held.entries.at(entry.name), entry.view); });
}

std::string pack(const Snapshot& held) {
  std::vector<std::string> texts{std::to_string(held.slot), held.boundary_done ? "1" : "0",
                                 std::to_string(held.components.scalars.size()),
                                 std::to_string(held.components.tensors.size())};
  const auto text = [](const std::vector<std::byte>& bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (const auto& [name, value] : held.components.scalars) texts.insert(texts.end(), {name, value});
  for (const auto& [name, bytes] : held.components.tensors) texts.insert(texts.end(), {name, text(bytes)});
  for (const auto& [name, bytes] : held.entries) texts.insert(texts.end(), {name, text(bytes)});
  return join_texts(texts);
}

Snapshot unpack(const std::string& packed) {
  const std::vector<std::string> texts = split_texts(packed);
  if (texts.size() < kPackedHead || (texts.size() - kPackedHead) % 2 != 0)
    fail_run(fmt::format("a copy of a rank's state has an invalid number of parts, {}", texts.size()));
  Snapshot held;
  held.slot = std::strtoll(texts[0].c_str(), nullptr, 10);
  held.boundary_done = texts[1] == "1";
  const std::size_t scalars = std::strtoull(texts[2].c_str(), nullptr, 10);
  const std::size_t tensors = std::strtoull(texts[3].c_str(), nullptr, 10);
  for (std::size_t i = kPackedHead, n = 0; i < texts.size(); i += 2, ++n) {
    const std::string& value = texts[i + 1];
    if (n < scalars) {
      held.components.scalars[texts[i]] = value;
      continue;
    }
    auto& bytes = n < scalars + tensors ? held.components.tensors[texts[i]] : held.entries[texts[i]];
    const auto* first = reinterpret_cast<const std::byte*>(value.data());
    bytes.assign(first, first + value.size());
  }
  return held;
}

std::string hash_of(const Snapshot& held) {
  StateHasher hasher;
  for (const auto& [name, bytes] : held.entries) {
    hasher.add(name, bytes_view(bytes.data(), bytes.size()));
  }
  return hasher.hex();
}

}  // namespace tenon::train
