#include "failover/survivor.hpp"

#include "base/elapsed.hpp"
#include "control/control_wire.hpp"
#include "graph/row_table.hpp"
#include "loop/row_protocol.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>

namespace tenon::train {
namespace {

constexpr std::string_view kRecovery = "recovery/";

/// The components of a survivor, for a replacement rank. Without the tensors of the recovery policy, which
/// describe the survivor's own rows.
struct NewcomerSource final : StateSource {
  HeldComponents given;
  const std::string* scalar(const std::string& name) override { return given.scalar(name); }
  void tensor(const std::string& name, TensorView out) override {
    if (!name.starts_with(kRecovery)) given.tensor(name, out);
  }
};

/// Message of a rank to the others when it rejoins.
struct RejoinReport {
  std::int64_t slot = -1;  ///< -1: it has no state
  bool boundary_done = false;
  double waited_s = 0;
};

RejoinReport read_rejoin_report(const std::string& text) {
  RejoinReport brought;
  if (text.empty()) return brought;
  std::istringstream words(text);
  int done = 0;
  std::string waited;
  words >> brought.slot >> done >> waited;
  brought.boundary_done = done == 1;
  brought.waited_s = std::strtod(waited.c_str(), nullptr);
  return brought;
}

/// Scalars, and the names and sizes of the tensors that will follow them.
std::string described(const HeldComponents& held) {
  std::vector<std::string> texts{std::to_string(held.scalars.size())};
  for (const auto& [name, value] : held.scalars) texts.insert(texts.end(), {name, value});
  for (const auto& [name, bytes] : held.tensors) {
    if (!name.starts_with(kRecovery)) texts.insert(texts.end(), {name, std::to_string(bytes.size())});
  }
  return join_texts(texts);
}

HeldComponents read_described(const std::string& text) {
  const std::vector<std::string> texts = split_texts(text);
  HeldComponents held;
  const std::size_t scalars = std::stoul(texts.at(0));
  for (std::size_t i = 1; i + 1 < texts.size(); i += 2) {
    if ((i - 1) / 2 < scalars) {
      held.scalars[texts[i]] = texts[i + 1];
    } else {
      held.tensors[texts[i]].resize(std::stoul(texts[i + 1]));
    }
  }
  return held;
}

}  // namespace

Survivor::Survivor(const RankContext& rank, const Sources& sources)
    : rank_(rank), from_(sources), marks_slots_(rank.world.place.survives && sources.unrecoverable.empty()) {}

void Survivor::begin() {
  has_state_ = true;
  rank_.world.survival.held.reset();
}

void Survivor::before_slot(std::int64_t slot) {
  if (marks_slots_) mark_slot(rank_.state, slot, mark_);
}

void Survivor::hold() {
  rank_.world.phase.enter("hold");
  if (WallTimeBreakdown* mine = rank_.wall_time()) mine->enter(WallTimeBreakdown::Entry::kRestart);
  if (!has_state_) return;  // what the process held before is as good as when it was given back
  if (WallTimeBreakdown* mine = rank_.wall_time()) mine->back_to(rank_.counters.slot);
  from_.saves.take_results();
  const bool interrupted_slot = mark_.slot == rank_.counters.slot;
  rank_.lines.note();
  Snapshot held = take_snapshot(rank_.state, interrupted_slot ? &mark_ : nullptr);
  held.boundary_done = from_.progress.boundary_done == held.slot;
  held.unfinished_saves = from_.saves.unfinished();
  rank_.host.log(LogLevel::kInfo,
                 fmt::format("interrupted; keeps its state at slot {}: {}", held.slot, hash_of(held)));
  rank_.world.survival.held = std::move(held);
}

void Survivor::find_survivors() {
  const auto& held = rank_.world.survival.held;
  const std::string mine = held ? fmt::format("{} {:d} {:a}", held->slot, held->boundary_done,
                                              base::steady_seconds() - held->since_s)
                                : "";
  std::vector<RejoinReport> brought;
  for (const std::string& text : rank_.world.links.end_hub->exchange(rank_.index, mine))
    brought.push_back(read_rejoin_report(text));
  Survivors survivors;
  survivors.slot = -1;
  for (const RejoinReport& rank : brought) survivors.slot = std::max(survivors.slot, rank.slot);
  for (std::size_t r = 0; r < brought.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (brought[r].slot < 0) {
      survivors.dead.push_back(rank);
    } else if (brought[r].slot < survivors.slot) {
      survivors.behind.push_back(rank);
    }
    survivors.boundary_done = survivors.boundary_done && (brought[r].slot < 0 || brought[r].boundary_done);
    survivors.waited_s = std::max(survivors.waited_s, brought[r].waited_s);
  }
  if (const std::int64_t slot = rank_.parts.recovery->rejoin(); slot >= 0) survivors.kept = slot;
  from_.faults.happened_through(survivors.slot < 0 ? rank_.world.settings.run.steps : survivors.slot);
  std::string why = from_.unrecoverable;
  if (!survivors.behind.empty() && loses_rows()) why = "its ranks were not at one slot";
  if (survivors.slot < 0) why = "no rank has kept its state";
  if (survivors.kept) why.clear();
  if (why.empty()) {
    const auto first = std::find_if(brought.begin(), brought.end(),
                                    [&](const RejoinReport& rank) { return rank.slot == survivors.slot; });
    survivors.first = static_cast<int>(first - brought.begin());
    rank_.world.start.survivors = survivors;
    return;
  }
  rank_.world.survival.forget();
  rank_.world.record.notes.push_back(fmt::format("all ranks go back to a checkpoint: {}", why));
}

/// In place of reading a checkpoint.
void Survivor::rejoin() {
  rank_.world.phase.enter("rejoin");
  const double began_s = base::steady_seconds();
  const Survivors& survivors = *rank_.world.start.survivors;
  if (survivors.kept) return restore_kept(began_s);
  auto& held = rank_.world.survival.held;
  if (held) {
    give_back(rank_.state, *held);
    rank_.lines.take();
    from_.saves.report(held->unfinished_saves);
  }
  from_.saves.set_newest(rank_.world.start.restored_slot, rank_.world.start.restored_place);
  share_state(survivors);
  from_.phases.begin();
  rank_.counters.wall_s = rank_.world.start.restored_wall_s;
  from_.progress.begin_at(rank_.counters.slot);
  from_.progress.boundary_again = !survivors.boundary_done;
  if (survivors.dead.empty()) return log_state();
  FailedEvent record;
  record.slot = rank_.counters.slot;
  record.samples = record.from_samples = rank_.counters.samples;
  record.from_slot = rank_.counters.slot;
  record.dead = survivors.dead;  // a roll-back looks at it
  const std::int64_t repeated = handle_deaths(survivors, record);
  if (!from_.recovery.rolls_back()) log_state();
  log_deaths(record, began_s, repeated);
}

/// The hash of the state in the log shows that a survivor has kept it.
void Survivor::log_state() {
  rank_.host.log(LogLevel::kInfo, fmt::format("continues from slot {}: {}", rank_.counters.slot,
                                              hash_of(take_snapshot(rank_.state, nullptr))));
}

void Survivor::log_deaths(FailedEvent& record, double began_s, std::int64_t repeated) {
  record.index = rank_.world.place.generation;
  record.dead = rank_.world.start.survivors->dead;
  record.restore_s = base::steady_seconds() - began_s;
  record.seconds = rank_.world.start.survivors->waited_s + record.restore_s;
  record.account = from_.recovery.account();
  if (rank_.index != 0) return;
  rank_.host.log(LogLevel::kWarning,
                 fmt::format("{} died and {} replaced in slot {}; {}", ranks_text(record.dead),
                             record.dead.size() == 1 ? "was" : "were", record.slot, record.action));
  if (rank_.world.record.recovery_log) rank_.world.record.recovery_log->failed(record, repeated);
  if (!from_.recovery.rolls_back())
    rank_.lines.add(rank_.counters.slot, Split::kTrain, "failures",
                    static_cast<double>(rank_.world.place.generation));
}

/// In place of reading a checkpoint.
void Survivor::restore_kept(double began_s) {
  const Survivors& survivors = *rank_.world.start.survivors;
  FailedEvent record;
  record.action = action_name(FailureAction::kRollBack);
  rank_.parts.recovery->bring_back(*survivors.kept);
  const StartPoint& start = rank_.world.start;
  from_.saves.set_newest(start.restored_slot <= *survivors.kept ? start.restored_slot : -1,
                         start.restored_place);
  rank_.counters.wall_s = rank_.world.start.restored_wall_s;
  from_.progress.begin_at(rank_.counters.slot);
  from_.phases.begin(true);
  record.slot = std::max(survivors.slot, rank_.counters.slot);
  record.from_slot = rank_.counters.slot;
  record.from_samples = rank_.counters.samples;
  if (WallTimeBreakdown* mine = rank_.wall_time()) mine->back_to(rank_.counters.slot);
  // All ranks are at one slot and take equally many samples in each.
  const std::int64_t repeated = record.slot - rank_.counters.slot;
  record.samples = rank_.counters.samples + repeated * rank_.world.settings.run.accumulate *
                                                rank_.parts.dataset->batch() * rank_.weights.replicas();
  log_deaths(record, began_s, repeated);
}

// Strategies rely on replicas being equal, so that is made true for all: an interruption may have come
// between two messages that make buffers equal.
void Survivor::share_state(const Survivors& survivors) {
  Communicator* group = rank_.weights.group(Purpose::kRecovery);
  if (group == nullptr) return;
  ParameterSet& live = rank_.weights.live();
  const auto share = [&](const ParameterSet& set) {
    for (int arena = 0; arena < set.arenas(); ++arena) {
      if (!set.arena(arena).empty()) group->broadcast(set.arena(arena), survivors.first);
    }
  };
  share(live);
  const bool up_to_date = rank_.world.survival.held && !is_among(survivors.behind, rank_.index);
  if (rank_.world.settings.buffers == config::BufferPolicy::kLocal && up_to_date)
    give_back_buffers(rank_.state, *rank_.world.survival.held);
  for (const auto& set : from_.updater.state()) share(*set);
  for (const StateEntry& entry : rank_.state.entries()) {
    if (entry.table == nullptr || is_lost_with_its_rank(entry.parameter)) continue;
    graph::for_each_chunk(*entry.table, [&](std::span<const std::int64_t> ids, TensorView rows) {
      entry.table->scan(ids, rows);
      group->broadcast(rows, survivors.first);
      entry.table->fill(ids, rows);
    });
  }
  share_components(survivors, *group);
  live.touch(-1);
}

void Survivor::share_components(const Survivors& survivors, Communicator& group) {
  if (survivors.dead.empty() && survivors.behind.empty()) return;
  const bool gives = rank_.index == survivors.first;
  const bool takes = is_among(survivors.dead, rank_.index) || is_among(survivors.behind, rank_.index);
  NewcomerSource source;
  const HeldComponents& mine =
      rank_.world.survival.held ? rank_.world.survival.held->components : source.given;
  const auto texts = rank_.world.links.end_hub->exchange(rank_.index, gives ? described(mine) : "");
  source.given = read_described(texts[survivors.first]);
  for (auto& [name, bytes] : source.given.tensors) {
    if (gives) bytes = mine.tensors.at(name);
    if (!bytes.empty()) group.broadcast(bytes_view(bytes.data(), bytes.size()), survivors.first);
  }
  if (!takes) return;
  StateRestorer restorer(source);
  rank_.state.visit(restorer);
  if (!is_among(survivors.dead, rank_.index)) return;
  rank_.state.visit_lines(restorer);
  // The sums are the giver's; those of the dead rank are lost.
  LineCounts& lines = rank_.counters.lines;
  lines.loss_sum = lines.loss_count = 0;
  rank_.lines.take();
}

bool Survivor::is_lost_with_its_rank(int parameter) const {
  return is_sharded(rank_.weights.live().parameters()[parameter].spec, kReplicaAxis);
}

bool Survivor::loses_rows(const ParameterSet& live) {
  const auto parameters = live.parameters();
  return std::any_of(parameters.begin(), parameters.end(), [&](const ParameterInfo& info) {
    return live.table(info.index) != nullptr && is_sharded(info.spec, kReplicaAxis);
  });
}

/// Asks the policy, on all ranks, and does what it says. Returns the slots that will be computed again.
std::int64_t Survivor::handle_deaths(const Survivors& survivors, FailedEvent& record) {
  FailureEvent event;
  event.slot = rank_.counters.slot;
  event.samples = rank_.counters.samples;
  event.dead = event.shards = survivors.dead;
  const FailureDecision decision = rank_.parts.recovery->on_failure(event);
  record.action = action_name(decision.action);
  for (const std::string& other : rank_.world.links.end_hub->exchange(rank_.index, record.action)) {
    if (other == record.action) continue;
    fail_plugin(
        fmt::format("recovery '{}' decides '{}' on one rank and '{}' on another; on_failure must follow "
                    "from what all ranks know",
                    rank_.parts.recovery.id(), record.action, other));
  }
  switch (decision.action) {
    case FailureAction::kContinuePartial:
      restore_dead(decision, survivors, record);
      return 0;
    case FailureAction::kRollBack:
      return rank_.counters.slot - from_.recovery.roll_back(decision, rank_.counters.slot, record);
    default:
      fail_run(fmt::format(
          "{} died in slot {}, and recovery policy '{}' decided '{}'; choose one that continues, e.g. "
          "[recovery] type = \"full\", \"replica\" or \"cpr\"",
          ranks_text(survivors.dead), rank_.counters.slot, rank_.parts.recovery.id(), record.action));
  }
}

/// Replacement ranks read their rows from a checkpoint; survivors keep theirs.
void Survivor::restore_dead(const FailureDecision& decision, const Survivors& survivors,
                            FailedEvent& record) {
  if (!loses_rows()) return;
  const RestoredRows restored = from_.recovery.restore_lost(
      decision, survivors.dead, is_among(survivors.dead, rank_.index),
      [this](int parameter, std::int64_t) { return is_lost_with_its_rank(parameter); }, record);
  const std::vector<std::string> sums =
      rank_.world.links.end_hub->exchange(rank_.index, fmt::format("{} {}", restored.rows, restored.bytes));
  for (const std::string& text : sums) {
    std::istringstream words(text);
    std::int64_t rows = 0, bytes = 0;
    words >> rows >> bytes;
    record.rows += rows;
    record.bytes_read += bytes;
  }
}

}  // namespace tenon::train
