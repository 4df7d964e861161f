#include "train/divergence.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::train {

Divergence::Divergence(const RankContext& rank, Saves& saves, RecoveryActions& recovery, Communicator* grid)
    : rank_(rank),
      saves_(saves),
      recovery_(recovery),
      grid_(grid),
      watch_(rank.parts.recovery.offered<DivergenceWatch>()) {
  if (watch_ != nullptr && (rank_.world.settings.parallel.workers > 1 ||
                            (rank_.weights.replicas() > 1 && !rank_.state.members().shared))) {
    fail_config(fmt::format(
        "recovery '{}' watches gradient norms, which replicas that update alone (sync strategy '{}') and "
        "several "
        "workers do not share; take a strategy that exchanges gradients in every slot, and one worker",
        rank_.parts.recovery.id(), rank_.parts.sync.id()));
  }
}

// Replicas see different losses, and ranks of a grid some none: with the mean of all, all decide alike.
void Divergence::after_slot(std::int64_t slot, const SlotResult& result) {
  if (watch_ == nullptr || result.kind != SlotKind::kGrad) return;
  double pair[2] = {result.loss_sum, result.loss_count};
  TensorView view;
  view.data = pair;
  view.dtype = DType::kF64;
  view.shape = Shape{2};
  if (grid_ != nullptr) grid_->all_reduce(view, ReduceOp::kSum);
  if (Communicator* group = rank_.weights.group(Purpose::kStatistics))
    group->all_reduce(view, ReduceOp::kSum);
  SlotOutcome outcome;
  outcome.slot = slot;
  outcome.loss = pair[1] > 0 ? pair[0] / pair[1] : 0;
  outcome.gradient_norm = result.gradient_norm;
  outcome.applied = result.applied;
  diverged_ = rank_.parts.recovery.guarded(*watch_)->diverged(outcome);
  if (!diverged_) return;
  rank_.host.log(LogLevel::kWarning,
                 fmt::format("training diverges: slot {} has loss {:g}, gradient norm {:g}", outcome.slot,
                             outcome.loss, outcome.gradient_norm));
}

void Divergence::plan(Boundary& due) {
  due_ = !due.stop && diverged_;
  due.keep_nothing |= due_;
  due.fails |= due_;
  due.acts |= due_;
}

void Divergence::at_boundary(Boundary& due) {
  if (!due_) return;
  const std::int64_t slot = due.slot;
  const double began_s = rank_.world.clock->now();
  const LedgerScope entry(rank_.ledger(), OverheadLedger::Entry::kRestart);
  saves_.await();
  FailureEvent event;
  event.slot = slot;
  event.samples = rank_.counters.samples;
  event.kind = FailureKind::kDivergence;
  const FailureDecision decision = rank_.parts.recovery->on_failure(event);
  if (decision.action != FailureAction::kRollBack) {
    fail_run(
        fmt::format("training diverged again before slot {}, after {} roll-back(s) for it: lower "
                    "optimizer.lr, set run.clip, or let recovery '{}' try more often",
                    slot, rank_.world.divergences, rank_.parts.recovery.id()));
  }
  FailedEvent record;
  record.slot = slot;
  record.samples = rank_.counters.samples;
  record.action = "diverged";
  const std::int64_t to = recovery_.roll_back(decision, slot, record);
  record.seconds = rank_.world.clock->now() - began_s;
  record.account = recovery_.account();
  rank_.host.log(LogLevel::kWarning,
                 fmt::format("training diverged: back from slot {} to slot {}", slot, to));
  if (rank_.index == 0 && rank_.world.recovery_log) rank_.world.recovery_log->failed(record, slot - to);
}

void Divergence::begin_again() {
  if (rank_.epoch > 0 && rank_.world.divergences > 0) {
    rank_.counters.divergences = rank_.world.divergences;
    rank_.counters.diverged_to = rank_.world.diverged_to;
  } else if (rank_.epoch == 0) {
    rank_.world.divergences = rank_.counters.divergences;
    rank_.world.diverged_to = rank_.counters.diverged_to;
  }
  if (rank_.epoch == 0 || watch_ == nullptr || rank_.counters.diverged_to != rank_.counters.slot) return;
  const auto watch = rank_.parts.recovery.guarded(*watch_);
  rank_.counters.position +=
      watch->skipped_batches() * rank_.parts.dataset->batch() * rank_.weights.replicas();
  if (!watch->resets_optimizer()) return;
  rank_.state.reset_optimizer();
  rank_.counters.updates = 0;
}

}  // namespace tenon::train
