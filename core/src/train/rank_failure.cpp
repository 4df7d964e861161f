// What a rank does when failure domains lose their rows: it asks the policy, and restores these rows alone or
// leaves, to be built again at an earlier checkpoint.
#include "graph/memory_budget.hpp"
#include "train/failure_text.hpp"
#include "train/rank.hpp"
#include "train/state_io.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace tenon::train {
namespace {

std::int64_t number_of(const std::string& text) {
  std::int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

std::string_view action_name(FailureAction action) {
  switch (action) {
    case FailureAction::kContinuePartial:
      return "continue_partial";
    case FailureAction::kRollBack:
      return "roll_back";
    case FailureAction::kAbort:
      break;
  }
  return "abort";
}

std::int64_t samples_of(const CheckpointReader& reader) {
  const std::string* text = reader.meta("rank0/core/samples");
  return text == nullptr ? 0 : std::max<std::int64_t>(0, number_of(*text));
}

void Rank::bind_recovery() {
  const Part<Recovery>& policy = parts_->recovery;
  divergence_ = static_cast<DivergenceWatch*>(policy->query(DivergenceWatch::kId));
  if (divergence_ != nullptr &&
      (world_.settings.parallel.workers > 1 || (weights_->replicas() > 1 && !state_->members().shared))) {
    fail_config(fmt::format(
        "recovery '{}' watches gradient norms, which replicas that update alone (sync strategy '{}') and "
        "several "
        "workers do not share; take a strategy that exchanges gradients in every slot, and one worker",
        parts_->recovery.id(), parts_->sync.id()));
  }
  const config::CoreSettings& settings = world_.settings;
  if (settings.emulate) {
    if (settings.parallel.servers > 0)
      fail_config("[emulate]: what servers hold cannot be rolled back; set parallel.servers = 0");
    emulated_ = std::make_unique<EmulatedFailures>(*settings.emulate, settings.run.steps,
                                                   weights_->live().parameters());
    emulated_->start_with(world_.next_failure);
  }
  auto* binding = static_cast<RecoveryBinding*>(parts_->recovery->query(RecoveryBinding::kId));
  if (binding == nullptr) return;
  RecoveryContext context;
  context.rank = rank_;
  context.ranks = static_cast<int>(settings.parallel.trainers());
  context.steps = settings.run.steps;
  context.samples =
      graph::saturating_product(graph::saturating_product(settings.run.steps, settings.run.accumulate),
                                graph::saturating_product(parts_->dataset->batch(), weights_->replicas()));
  context.seed = settings.run.seed;
  context.failures = static_cast<std::int64_t>(world_.next_failure);
  context.divergences = world_.divergences;
  context.live = &weights_->live();
  context.domains = failure_domains();
  if (settings.emulate) {
    context.emulated = true;
    context.costs = settings.emulate->costs;
  }
  parts_->recovery.guarded(*binding)->bind(context);
}

/// Those of the emulated cluster, else the ranks.
FailureDomains Rank::failure_domains() const {
  if (emulated_ != nullptr) return emulated_->domains();
  return {static_cast<int>(world_.settings.parallel.trainers()), false};
}

void Rank::report_restored(int shard, std::int64_t slot, std::int64_t samples) {
  RestoredShard restored;
  restored.shard = shard;
  restored.checkpoint_slot = slot;
  restored.checkpoint_samples = samples;
  restored.samples_now = counters_.samples;
  parts_->recovery->on_restored(restored);
}

/// What the ranks together would write, as it lies in memory.
std::int64_t Rank::bytes_of_all_ranks() {
  std::int64_t mine = 0, all = 0;
  for (const StateEntry& entry : state_->entries()) {
    if (!entry.written) continue;
    mine += entry.table == nullptr
                ? entry.view.bytes()
                : dtype_bytes(entry.table->dtype(), (entry.table->owned_last() - entry.table->owned_first()) *
                                                        entry.table->width());
  }
  for (const std::string& text : world_.end_hub->exchange(rank_, std::to_string(mine)))
    all += number_of(text);
  return all;
}

std::map<std::string, double> Rank::recovery_account() {
  std::map<std::string, double> values;
  auto* account = static_cast<RecoveryAccount*>(parts_->recovery->query(RecoveryAccount::kId));
  if (account != nullptr) {
    parts_->recovery.guarded(*account)->account(
        [&](std::string_view name, double value) { values.insert_or_assign(std::string(name), value); });
  }
  return values;
}

void Rank::meet_failures(std::int64_t slot) {
  if (emulated_ == nullptr) return;
  while (!rolls_back_) {
    const EmulatedFailure* failure = emulated_->due(slot);
    if (failure == nullptr) return;
    meet(*failure, slot);
  }
}

// Collective: every rank is at this boundary, and none has a transfer on its way.
void Rank::meet(const EmulatedFailure& failure, std::int64_t slot) {
  const double began_s = world_.clock->now();
  const LedgerScope entry(ledger(), OverheadLedger::Entry::kRestart);
  saves_->await();
  FailedEvent record;
  record.index = static_cast<std::int64_t>(emulated_->next());
  record.hour = failure.hour;
  record.slot = slot;
  record.samples = counters_.samples;
  record.shards = failure.shards;
  record.lost_access_share = emulated_->lose(failure.shards);
  FailureEvent event;
  event.slot = slot;
  event.samples = counters_.samples;
  event.shards = failure.shards;
  const FailureDecision decision = parts_->recovery->on_failure(event);
  record.action = action_name(decision.action);
  host_.log(LogLevel::kWarning,
            fmt::format("shards {} lost their rows at slot {} (emulated, hour {:.2f}): {}",
                        fmt::join(failure.shards, ", "), slot, failure.hour, record.action));
  emulated_->happened();
  std::int64_t repeated = 0;
  switch (decision.action) {
    case FailureAction::kContinuePartial:
      restore_shards(decision, failure.shards, record);
      break;
    case FailureAction::kRollBack:
      repeated = slot - roll_back(decision, slot, record);
      break;
    default:
      fail_run(fmt::format(
          "shards {} lost their rows at slot {}, and recovery policy '{}' answers with '{}'; choose one that "
          "restores, e.g. [recovery] type = \"full\" or \"cpr\"",
          fmt::join(failure.shards, ", "), slot, parts_->recovery.id(), record.action));
  }
  record.seconds = world_.clock->now() - began_s;
  stall_s_ += record.seconds;
  record.account = recovery_account();
  if (rank_ != 0) return;
  if (world_.recovery_log) world_.recovery_log->failed(record, repeated);
  if (!rolls_back_) lines_.add(slot, Split::kTrain, "failures", static_cast<double>(emulated_->next()));
  for (const auto& [name, value] : record.account) {
    if (!rolls_back_) lines_.add(slot, Split::kTrain, name, value);
  }
}

// Replicas see different losses, and ranks of a grid some none: with the mean of all, all decide alike.
void Rank::watch_divergence(const Ticket& ticket, const SlotResult& result) {
  if (divergence_ == nullptr || result.kind != SlotKind::kGrad) return;
  double pair[2] = {result.loss_sum, result.loss_count};
  TensorView view;
  view.data = pair;
  view.dtype = DType::kF64;
  view.shape = Shape{2};
  if (grid_ != nullptr) grid_->all_reduce(view, ReduceOp::kSum);
  if (Communicator* group = weights_->group(Purpose::kStatistics)) group->all_reduce(view, ReduceOp::kSum);
  SlotOutcome outcome;
  outcome.slot = ticket.slot;
  outcome.loss = pair[1] > 0 ? pair[0] / pair[1] : 0;
  outcome.gradient_norm = result.gradient_norm;
  outcome.applied = result.applied;
  diverged_ = parts_->recovery.guarded(*divergence_)->diverged(outcome);
  if (!diverged_) return;
  host_.log(LogLevel::kWarning, fmt::format("training diverges: slot {} has loss {:g}, gradient norm {:g}",
                                            outcome.slot, outcome.loss, outcome.gradient_norm));
}

void Rank::meet_divergence(std::int64_t slot) {
  const double began_s = world_.clock->now();
  const LedgerScope entry(ledger(), OverheadLedger::Entry::kRestart);
  saves_->await();
  FailureEvent event;
  event.slot = slot;
  event.samples = counters_.samples;
  event.kind = FailureKind::kDivergence;
  const FailureDecision decision = parts_->recovery->on_failure(event);
  if (decision.action != FailureAction::kRollBack) {
    fail_run(
        fmt::format("training diverged again before slot {}, after {} roll-back(s) for it: lower "
                    "optimizer.lr, set run.clip, or let recovery '{}' try more often",
                    slot, world_.divergences, parts_->recovery.id()));
  }
  FailedEvent record;
  record.slot = slot;
  record.samples = counters_.samples;
  record.action = "diverged";
  const std::int64_t to = roll_back(decision, slot, record);
  record.seconds = world_.clock->now() - began_s;
  record.account = recovery_account();
  host_.log(LogLevel::kWarning, fmt::format("training diverged: back from slot {} to slot {}", slot, to));
  if (rank_ == 0 && world_.recovery_log) world_.recovery_log->failed(record, slot - to);
}

/// Behind every restoration: what the newest roll-back for divergence changed is no part of its checkpoint.
void Rank::begin_again_after_divergence() {
  if (epoch_ > 0 && world_.divergences > 0) {
    counters_.divergences = world_.divergences;
    counters_.diverged_to = world_.diverged_to;
  } else if (epoch_ == 0) {
    world_.divergences = counters_.divergences;
    world_.diverged_to = counters_.diverged_to;
  }
  if (epoch_ == 0 || divergence_ == nullptr || counters_.diverged_to != counters_.slot) return;
  const auto watch = parts_->recovery.guarded(*divergence_);
  counters_.position += watch->skipped_batches() * parts_->dataset->batch() * weights_->replicas();
  if (!watch->resets_optimizer()) return;
  state_->reset_optimizer();
  counters_.updates = 0;
}

/// Rank 0's finding, at all ranks. -1: there is no such checkpoint.
std::int64_t Rank::agreed_checkpoint(const FailureDecision& decision, bool consistent_only) {
  std::string found;
  if (rank_ == 0) {
    std::int64_t step = decision.from_slot;
    if (step < 0) {
      const RestorePoint point = world_.store->recover(consistent_only);
      for (const RejectedGeneration& bad : point.rejected) {
        host_.log(LogLevel::kError,
                  fmt::format("checkpoint of slot {} is damaged and was put aside as {}: {}", bad.step,
                              bad.path, bad.reason));
      }
      step = point.step;
    }
    found = std::to_string(step);
  }
  return number_of(world_.end_hub->exchange(rank_, found)[0]);
}

void Rank::restore_shards(const FailureDecision& decision, std::span<const int> shards, FailedEvent& record) {
  const FailureDomains& domains = emulated_->domains();
  const RestoredRows restored = restore_lost(
      decision, shards, true,
      [&](int parameter, std::int64_t row) {
        return std::binary_search(shards.begin(), shards.end(), shard_of_row(domains, parameter, row));
      },
      record);
  record.rows = restored.rows;
  record.bytes_read = restored.bytes;
}

/// `holds`: this rank has rows of the lost domains. Collective.
RestoredRows Rank::restore_lost(const FailureDecision& decision, std::span<const int> shards, bool holds,
                                const RankState::IsLost& is_lost, FailedEvent& record) {
  const LedgerScope entry(ledger(), OverheadLedger::Entry::kLoad);
  const std::int64_t step = agreed_checkpoint(decision, false);
  std::optional<CheckpointReader> reader;
  if (step >= 0) {
    reader.emplace(world_.store->open(step));
    saves_->add_decoders(*reader);
  }
  RestoredRows restored;
  if (holds)
    restored = state_->restore_rows(reader ? &*reader : nullptr, is_lost, world_.settings.run.seed_init);
  record.from_slot = std::max<std::int64_t>(0, step);
  record.from_samples = reader ? samples_of(*reader) : 0;
  for (const int shard : shards) report_restored(shard, record.from_slot, record.from_samples);
  return restored;
}

/// The rank ends here and is built again at the returned slot. What happened since goes from the metrics.
std::int64_t Rank::roll_back(const FailureDecision& decision, std::int64_t slot, FailedEvent& record) {
  const std::int64_t step = agreed_checkpoint(decision, true);
  std::int64_t timeline = world_.timeline + 1;
  if (step >= 0) {
    const CheckpointReader reader = world_.store->open(step);
    record.from_samples = samples_of(reader);
    timeline = std::max(timeline, reader.timeline() + 1);
  }
  record.from_slot = std::max<std::int64_t>(0, step);
  if (OverheadLedger* mine = ledger()) mine->back_to(record.from_slot);
  if (world_.place.survives) world_.survival.forget();
  rolls_back_ = true;
  World::RollBack target;
  target.epoch = epoch_ + 1;
  target.slot = step;
  // Emulated failures come before the slot, deaths in it.
  target.faults_from = record.dead.empty() ? slot : slot + 1;
  target.timeline = timeline;
  target.wall_s = lines_.wall_s();
  target.next_failure = emulated_ != nullptr ? emulated_->next() : world_.next_failure;
  target.diverged = record.action == "diverged";
  world_.roll_back(target);
  return record.from_slot;
}

// No failure, only the question: what the policy noted of it is taken back, or a run that is continued would
// not be the one that was left alone.
bool Rank::continues_mixed() {
  HeldComponents before = held_recovery(*state_);
  FailureEvent everything;
  for (int r = 0; r < world_.settings.parallel.trainers(); ++r) everything.dead.push_back(r);
  for (int s = 0; s < failure_domains().shards; ++s) everything.shards.push_back(s);
  const FailureDecision decision = parts_->recovery->on_failure(everything);
  give_back_recovery(*state_, std::move(before));
  return decision.action == FailureAction::kContinuePartial;
}

/// A run that is continued from rows of several moments has lost some of all shards.
void Rank::account_resumed(const CheckpointReader& reader) {
  if (!reader.consistent()) {
    for (int shard = 0; shard < failure_domains().shards; ++shard)
      report_restored(shard, reader.step(), counters_.samples);
    host_.log(LogLevel::kWarning,
              fmt::format("checkpoint of slot {} holds rows of several moments; the run goes on from it, as "
                          "recovery policy '{}' answers failures",
                          reader.step(), parts_->recovery.id()));
  }
  if (rank_ == 0 && world_.recovery_log)
    world_.recovery_log->resumed(reader.step(), counters_.samples, reader.consistent(), recovery_account());
}

/// In place of finish(): nothing of this rank is the run's result.
void Rank::leave() {
  if (OverheadLedger* mine = ledger()) mine->enter(OverheadLedger::Entry::kRestart);
  if (rank_ == 0) record_progress();
  observers_->finish("rolled back", "");
}

}  // namespace tenon::train
