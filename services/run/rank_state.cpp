// Enumeration of a rank's state, and its three uses.
#include "run/rank_state.hpp"

#include "graph/row_table.hpp"
#include "loop/update.hpp"
#include "record/saved_shape.hpp"
#include "run/evaluated_weights.hpp"
#include "run/state_io.hpp"

#include <tenon/error.hpp>
#include <tenon/executor.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

namespace tenon::train {
namespace {

std::vector<std::int64_t> owned_rows(const RowTable& table) {
  std::vector<std::int64_t> ids(table.owned_last() - table.owned_first());
  std::iota(ids.begin(), ids.end(), table.owned_first());
  return ids;
}

/// Rows of a table as one host tensor in `memory`.
TensorView stage(const RowTable& table, std::span<const std::int64_t> ids, std::vector<std::byte>& memory) {
  TensorView view;
  view.dtype = table.dtype();
  view.shape = Shape{static_cast<std::int64_t>(ids.size()), table.width()};
  memory.resize(view.bytes());
  view.data = memory.data();
  if (!ids.empty()) table.scan(ids, view);
  return view;
}
TensorView stage(const RowTable& table, std::vector<std::byte>& memory) {
  return stage(table, owned_rows(table), memory);
}

/// A tensor of the device in host memory.
TensorView to_host(const TensorView& view, Device& device, std::vector<std::byte>& memory) {
  if (view.space == MemorySpace::kHost) return view;
  TensorView host = view;
  host.space = MemorySpace::kHost;
  memory.resize(view.bytes());
  host.data = memory.data();
  device.copy(view, host);
  return host;
}

/// Reads "rank<r>/..." and, when the run that saved had fewer ranks, "rank0/..." instead.
class RankSource final : public StateSource {
 public:
  RankSource(CheckpointSource& source, int rank, std::string position)
      : source_(source), mine_(fmt::format("rank{}/", rank)), position_(std::move(position)) {}
  const std::string* scalar(const std::string& name) override {
    if (name == kPosition) return &position_;
    const std::string* own = source_.scalar(mine_ + name);
    return own != nullptr ? own : source_.scalar("rank0/" + name);
  }
  void tensor(const std::string& name, TensorView out) override { source_.tensor(mine_ + name, out); }

 private:
  static constexpr std::string_view kPosition = "core/position";
  CheckpointSource& source_;
  std::string mine_, position_;
};

}  // namespace

std::int64_t StateEntry::bytes() const {
  if (table == nullptr) return view.bytes();
  return dtype_bytes(table->dtype(), (table->owned_last() - table->owned_first()) * table->width());
}

void LineCounts::state(StateVisitor& visitor) {
  visitor.real("loss_sum", loss_sum);
  visitor.real("loss_count", loss_count);
  visitor.integer("skipped_updates", skipped_updates);
  visitor.integer("planned_slots", planned_slots);
  visitor.integer("planned_samples", planned_samples);
  visitor.integer("trained_samples", trained_samples);
  visitor.integer("evaluated", evaluated);
  visitor.integer("bytes_sent", bytes_sent);
  visitor.text("recorded", recorded);
}

void Counters::state(StateVisitor& visitor) {
  visitor.integer("slot", slot);
  visitor.integer("updates", updates);
  visitor.integer("position", position);
  visitor.integer("samples", samples);
  visitor.integer("tokens", tokens);
  visitor.integer("divergences", roll_backs);
  visitor.integer("diverged_to", rolled_back_to);
}

void RankState::add_set(std::vector<StateEntry>& out, const ParameterSet& set, const std::string& prefix,
                        bool written) const {
  for (const ParameterInfo& info : set.parameters()) {
    StateEntry entry;
    entry.name = prefix + "/" + info.spec.name;
    entry.view = set.tensor(info.index);
    entry.parameter = info.index;
    entry.global_shape = info.spec.shape;
    entry.offset = info.offset;
    entry.written = written && info.local.elements() > 0 && is_first_holder(info.spec, m_.coordinates);
    if (!entry.view.empty()) out.push_back(std::move(entry));
  }
}

// A table that is sharded over the replicas exists once, whatever the strategy: each owner writes its rows.
void RankState::add_table(std::vector<StateEntry>& out, RowTable* table, int parameter,
                          const std::string& name, std::int64_t width) const {
  const ParameterInfo& info = m_.weights->live().parameters()[parameter];
  const bool once = m_.shared || is_sharded(info.spec, kReplicaAxis);
  StateEntry entry;
  entry.name =
      fmt::format("{}{}/{}", once ? "" : fmt::format("replica{}/", m_.replica), name, info.spec.name);
  entry.table = table;
  entry.parameter = parameter;
  entry.global_shape = Shape{info.spec.shape[0], width};
  entry.offset = Shape{info.offset[0], 0};
  entry.written = info.local.elements() > 0 && is_first_holder(info.spec, m_.coordinates) &&
                  (is_sharded(info.spec, kReplicaAxis) || !m_.shared || m_.replica == 0);
  out.push_back(std::move(entry));
}

std::vector<StateEntry> RankState::entries() const {
  std::vector<StateEntry> out;
  const std::string own = fmt::format("replica{}/", m_.replica);
  const std::string shared = m_.shared ? "" : own;
  const bool written = !m_.shared || m_.replica == 0;
  ParameterSet& live = m_.weights->live();
  add_set(out, live, shared + "model", written);
  for (const ParameterInfo& info : live.parameters()) {
    if (RowTable* table = live.table(info.index)) add_table(out, table, info.index, "model", table->width());
  }
  for (const auto& set : m_.updater->state()) add_set(out, *set, shared + std::string(set->name()), written);
  for (const Updater::TableState& state : m_.updater->table_state()) {
    add_table(out, state.table.get(), state.parameter, state.name, state.table->width());
  }
  for (const auto& set : m_.weights->created_sets())
    add_set(out, *set, own + "sync." + std::string(set->name()), true);
  return out;
}

std::string RankState::evaluated_prefix() const {
  const std::string own = fmt::format("replica{}/", m_.replica);
  const ParameterSet* const evaluated = &m_.parts->sync->evaluation_parameters();
  if (evaluated == &m_.weights->live()) return (m_.shared ? "" : own) + "model/";
  for (const auto& set : m_.weights->created_sets())
    if (evaluated == set.get()) return own + "sync." + std::string(set->name()) + "/";
  return "";
}

void RankState::visit(StateVisitor& visitor) const {
  visit_step(visitor);
  visit_drawn(visitor);
  visit_recovery(visitor);
}

void RankState::visit_drawn(StateVisitor& visitor) const {
  if (m_.drawn == nullptr) return;
  visitor.enter("dataset");
  m_.parts->dataset.guarded(*m_.drawn)->state(visitor);
  visitor.leave();
}

// Where a period begins, all replicas draw anew.
void RankState::restore_drawn(const CheckpointReader& reader, StateVisitor& visitor) const {
  if (m_.drawn == nullptr) return;
  const int replicas = m_.weights->replicas();
  if (reader.world_size() == replicas) return visit_drawn(visitor);
  const std::int64_t period = m_.parts->dataset.guarded(*m_.drawn)->period();
  if (reader.step() % period == 0) return;
  fail_config(fmt::format(
      "the checkpoint of slot {} holds samples that {} replica(s) drew from the model, and this run has {}: "
      "within a period each replica keeps its own. Continue with parallel.ranks = {}, or from a slot that is "
      "a multiple of the period of {}, where all draw anew",
      reader.step(), reader.world_size(), replicas, reader.world_size(), period));
}

void RankState::visit_recovery(StateVisitor& visitor) const {
  visitor.enter("recovery");
  m_.parts->recovery->state(visitor);
  visitor.leave();
}

void RankState::visit_lines(StateVisitor& visitor) const {
  visitor.enter("lines");
  m_.counters->lines.state(visitor);
  visitor.leave();
}

void RankState::visit_step(StateVisitor& visitor) const {
  visitor.enter("core");
  m_.counters->state(visitor);
  visitor.leave();
  const auto component = [&](const char* name, auto& part) {
    visitor.enter(name);
    part->state(visitor);
    visitor.leave();
  };
  component("precision", m_.parts->precision);
  component("optimizer", m_.parts->optimizer);
  component("sync", m_.parts->sync);
  for (std::size_t i = 0; i < m_.executors.size(); ++i) {
    visitor.enter(fmt::format("sites{}", i));
    m_.executors[i]->state(visitor);
    visitor.leave();
  }
}

std::string RankState::digests() const {
  StateHasher hasher;
  std::vector<std::byte> memory;
  for (const StateEntry& entry : entries()) {
    if (!entry.written) continue;
    const std::string name = entry.name + "@" + entry.offset.text();
    if (entry.table == nullptr) {
      hasher.add(name, to_host(entry.view, *m_.parts->device, memory));
      continue;
    }
    const RowTable& table = *entry.table;
    hasher.begin(name, table.dtype(), Shape{table.owned_last() - table.owned_first(), table.width()});
    graph::for_each_chunk(table, [&](std::span<const std::int64_t> ids, TensorView rows) {
      table.scan(ids, rows);
      hasher.feed(rows.raw());
    });
    hasher.end();
  }
  StateCollector collector;
  visit(collector);
  const std::string prefix = fmt::format("rank{}/", m_.rank);
  for (auto& [name, text] : collector.scalars) {
    TensorView view;
    view.data = text.data();
    view.dtype = DType::kU8;
    view.shape = Shape{static_cast<std::int64_t>(text.size())};
    hasher.add(prefix + name, view);
  }
  for (const auto& [name, tensor] : collector.tensors) {
    hasher.add(prefix + name, to_host(tensor, *m_.parts->device, memory));
  }
  return hasher.digests();
}

void RankState::check(const CheckpointReader& reader, bool alone, Continued continued) const {
  const std::string_view needs = continued == Continued::kResume ? "--resume needs" : "a fork needs";
  const std::string_view instead = continued == Continued::kResume
                                       ? "Nothing was changed: continue with the old configuration, or start "
                                         "a new attempt without --resume"
                                       : "Begin with [init] what = \"weights\" where they shall differ";
  std::vector<TensorSpec> mine;
  for (const StateEntry& entry : entries()) {
    mine.push_back(
        {entry.name, entry.table != nullptr ? entry.table->dtype() : entry.view.dtype, entry.global_shape});
  }
  // Other ranks check their own state, and components theirs.
  const std::string own = fmt::format("replica{}/", m_.replica);
  const auto known = static_cast<std::ptrdiff_t>(mine.size());
  for (const TensorSpec& stored : reader.tensors()) {
    const bool elsewhere = !alone || stored.name.starts_with("rank") ||
                           (stored.name.starts_with("replica") && !stored.name.starts_with(own));
    if (elsewhere && std::none_of(mine.begin(), mine.begin() + known,
                                  [&](const TensorSpec& spec) { return spec.name == stored.name; })) {
      mine.push_back(stored);
    }
  }
  const int replicas = m_.weights->replicas();
  const auto weights_of_replicas = [&](std::string_view prefix) {
    const auto is_one = [&](const TensorSpec& spec) {
      return spec.name.starts_with(prefix) && spec.name.find("/model/") != std::string::npos;
    };
    return std::any_of(reader.tensors().begin(), reader.tensors().end(), is_one);
  };
  const bool each = weights_of_replicas("replica");
  const auto refuse_ranks = [&](const std::string& why) {
    const auto kept = [](bool by_each) {
      return by_each ? "keep weights and state of each replica" : "share one set of weights and state";
    };
    fail_config(fmt::format(
        "the checkpoint was saved by {} rank(s), which {}, and this run has {} replica(s), which {} ({}); {} "
        "the parallel.ranks and the sync strategy that saved it. {}",
        reader.world_size(), kept(each), replicas, kept(!m_.shared), why, needs, instead));
  };
  if (alone && each && !m_.shared && !weights_of_replicas(fmt::format("replica{}/", replicas - 1)))
    refuse_ranks(fmt::format("it has no weights of replica {}", replicas - 1));
  try {
    reader.check_model(mine);
  } catch (const Error& error) {
    if (each == m_.shared) refuse_ranks(error.what());
    fail_config(fmt::format("{}; {} the model, optimizer and sync strategy that saved it. {}", error.what(),
                            needs, instead));
  }
}

std::vector<KeptRows*> RankState::kept_rows() const {
  std::vector<KeptRows*> all;
  for (const StateEntry& entry : entries()) {
    if (entry.table == nullptr) continue;
    if (void* const kept = entry.table->query(KeptRows::kId)) all.push_back(static_cast<KeptRows*>(kept));
  }
  return all;
}

bool RankState::take_kept(const StateEntry& entry, CheckpointReader& reader, std::uint64_t attempt,
                          KeptCount& count) const {
  auto* const kept = static_cast<KeptRows*>(entry.table->query(KeptRows::kId));
  if (kept == nullptr) return false;
  const std::int64_t owned = entry.table->owned_last() - entry.table->owned_first();
  std::vector<std::int64_t> lost;
  if (!kept->go_back(reader.step(), attempt, lost)) {
    count.lost += owned;
    return false;
  }
  count.lost += static_cast<std::int64_t>(lost.size());
  count.kept += owned - static_cast<std::int64_t>(lost.size());
  std::vector<std::byte> memory(dtype_bytes(entry.table->dtype(), entry.table->width()));
  for (const std::int64_t id : lost) {
    const TensorView row{memory.data(), {1, entry.table->width()}, entry.table->dtype()};
    reader.read_slice(entry.name, Shape{id, 0}, row);
    entry.table->fill({&id, 1}, row);
  }
  return true;
}

void RankState::drop_kept_rows(std::uint64_t seed_init) const {
  std::vector<int> dropped;
  std::vector<std::int64_t> lost;
  for (const StateEntry& entry : entries()) {
    if (entry.table == nullptr || !graph::holds_kept_rows(*entry.table)) continue;
    static_cast<KeptRows*>(entry.table->query(KeptRows::kId))->go_back(-1, 0, lost);
    dropped.push_back(entry.parameter);
  }
  if (dropped.empty()) return;
  restore_rows(
      nullptr,
      [&](int parameter, std::int64_t) { return std::ranges::find(dropped, parameter) != dropped.end(); },
      seed_init);
}

KeptCount RankState::restore(CheckpointReader& reader, const RunShape& shape, std::uint64_t attempt,
                             Continued continued) const {
  CheckpointSource source(reader, *m_.parts->device);
  KeptCount count;
  for (const StateEntry& entry : entries()) {
    if (entry.table == nullptr) {
      source.read(entry.name, entry.offset, entry.view);
      continue;
    }
    if (continued == Continued::kResume && take_kept(entry, reader, attempt, count)) continue;
    graph::for_each_chunk(*entry.table, [&](std::span<const std::int64_t> ids, TensorView rows) {
      source.read(entry.name, Shape{ids.front(), 0}, rows);
      entry.table->fill(ids, rows);
    });
  }
  RankSource scalars(source, m_.rank, std::to_string(saved_position(reader, m_.replica, shape)));
  StateRestorer restorer(scalars);
  visit_step(restorer);
  restore_drawn(reader, restorer);
  // The policy of a fork has saved nothing yet.
  if (continued == Continued::kResume) visit_recovery(restorer);
  // Earlier versions saved none, and evaluated before they saved.
  m_.counters->lines.evaluated = reader.step();
  StateRestorer lines(scalars, Missing::kStays);
  visit_lines(lines);
  m_.weights->live().touch(-1);
  for (const auto& set : m_.weights->created_sets()) set->touch(-1);
  return count;
}

void RankState::reset_optimizer() const {
  std::vector<std::byte> zeros;
  for (const auto& set : m_.updater->state()) {
    for (int arena = 0; arena < set->arenas(); ++arena) {
      const TensorView view = set->arena(arena);
      if (view.empty()) continue;
      zeros.assign(view.bytes(), std::byte{0});
      TensorView host = view;
      host.space = MemorySpace::kHost;
      host.data = zeros.data();
      m_.parts->device->copy(host, view);
    }
  }
  for (const Updater::TableState& state : m_.updater->table_state()) {
    graph::for_each_chunk(*state.table, [&](std::span<const std::int64_t> ids, TensorView rows) {
      std::fill(rows.raw().begin(), rows.raw().end(), std::byte{0});
      state.table->fill(ids, rows);
    });
  }
}

RestoredRows RankState::restore_rows(CheckpointReader* reader, const IsLost& is_lost,
                                     std::uint64_t seed_init) const {
  RestoredRows restored;
  std::vector<std::int64_t> lost;
  const auto weights = m_.weights->live().parameters();
  for (const StateEntry& entry : entries()) {
    if (entry.table == nullptr) continue;
    const ParameterInfo& info = weights[entry.parameter];
    const bool is_weight = m_.weights->live().table(entry.parameter) == entry.table;
    graph::for_each_chunk(*entry.table, [&](std::span<const std::int64_t> ids, TensorView rows) {
      if (reader != nullptr) {
        reader->read_slice(entry.name, Shape{ids.front(), 0}, rows);
      } else if (is_weight) {
        initial_rows(info, seed_init, ids, rows);
      } else {
        std::fill(rows.raw().begin(), rows.raw().end(), std::byte{0});
      }
      // Lost rows move to the front of the chunk.
      lost.clear();
      const std::size_t row_bytes = dtype_bytes(rows.dtype, entry.table->width());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (!is_lost(entry.parameter, ids[i])) continue;
        if (lost.size() != i)
          std::memcpy(rows.raw().data() + lost.size() * row_bytes, rows.raw().data() + i * row_bytes,
                      row_bytes);
        lost.push_back(ids[i]);
      }
      if (lost.empty()) return;
      entry.table->fill(lost, rows.rows(0, static_cast<std::int64_t>(lost.size())));
      if (is_weight) restored.rows += static_cast<std::int64_t>(lost.size());
      restored.bytes += static_cast<std::int64_t>(lost.size() * row_bytes);
    });
    m_.weights->live().touch(entry.parameter);
  }
  return restored;
}

void SaveBuffers::release_tables() {
  items_.clear();
  staged_.clear();
}

void SaveBuffers::collect(const RankState& state, const RunShape& shape, const SavePlan& plan,
                          const Encode& encode) {
  items_.clear();
  meta_.clear();
  const std::vector<StateEntry> entries = state.entries();
  staged_.resize(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const StateEntry& entry = entries[i];
    if (!entry.written) continue;
    SaveItem item;
    item.name = entry.name;
    item.global_shape = entry.global_shape;
    item.offset = entry.offset;
    if (entry.table == nullptr) {
      if (!plan.everything && !plan.dense) continue;
      item.data = entry.view;
    } else if (plan.everything) {
      item.data = stage(*entry.table, staged_[i]);
    } else {
      const auto selection =
          std::find_if(plan.tables.begin(), plan.tables.end(),
                       [&](const RowSelection& rows) { return rows.parameter == entry.parameter; });
      if (selection == plan.tables.end()) continue;  // the base has it
      if (selection->all) {
        item.data = stage(*entry.table, staged_[i]);
      } else {
        item.data = stage(*entry.table, selection->ids, staged_[i]);
        item.rows = selection->ids;
        item.offset[0] = 0;
      }
    }
    const bool weights =
        entry.table != nullptr && entry.table == state.members().weights->live().table(entry.parameter);
    if (weights && plan.encoding != "plain" && item.data.dtype == DType::kF32) {
      std::vector<std::byte> encoded;
      encode(item.data, encoded);
      staged_[i] = std::move(encoded);
      item.encoding = plan.encoding;
      item.payload = staged_[i];
      item.data.data = nullptr;
    }
    items_.push_back(std::move(item));
  }
  StateCollector collector;
  state.visit(collector);
  state.visit_lines(collector);
  const std::string prefix = fmt::format("rank{}/", state.members().rank);
  for (auto& [name, text] : collector.scalars) meta_.push_back({prefix + name, std::move(text)});
  if (!state.members().shared || state.members().replica == 0)
    meta_.push_back({evaluated_key(state.members().replica), state.evaluated_prefix()});
  if (state.members().rank == 0) {
    record_data(state.members().parts->dataset->info().sources, meta_);
    record_shape(shape, meta_);
  }
  if (!plan.everything && !plan.dense) return;
  for (const auto& [name, tensor] : collector.tensors) {
    SaveItem item;
    item.name = prefix + name;
    item.data = tensor;
    item.global_shape = tensor.shape;
    item.offset = Shape(std::vector<std::int64_t>(tensor.shape.rank(), 0));
    items_.push_back(std::move(item));
  }
}

}  // namespace tenon::train
