#include "train/divergence.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::train {

Divergence::Divergence(World& world, const Sources& sources)
    : world_(world),
      from_(sources),
      epoch_(world.epoch),
      watch_(static_cast<DivergenceWatch*>(sources.parts->recovery->query(DivergenceWatch::kId))) {
  if (watch_ != nullptr && (world_.settings.parallel.workers > 1 ||
                            (from_.weights->replicas() > 1 && !from_.state->members().shared))) {
    fail_config(fmt::format(
        "recovery '{}' watches gradient norms, which replicas that update alone (sync strategy '{}') and "
        "several "
        "workers do not share; take a strategy that exchanges gradients in every slot, and one worker",
        from_.parts->recovery.id(), from_.parts->sync.id()));
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
  if (from_.grid != nullptr) from_.grid->all_reduce(view, ReduceOp::kSum);
  if (Communicator* group = from_.weights->group(Purpose::kStatistics))
    group->all_reduce(view, ReduceOp::kSum);
  SlotOutcome outcome;
  outcome.slot = slot;
  outcome.loss = pair[1] > 0 ? pair[0] / pair[1] : 0;
  outcome.gradient_norm = result.gradient_norm;
  outcome.applied = result.applied;
  diverged_ = from_.parts->recovery.guarded(*watch_)->diverged(outcome);
  if (!diverged_) return;
  from_.host->log(LogLevel::kWarning,
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
  const double began_s = world_.clock->now();
  const LedgerScope entry(world_.ledger(from_.rank), OverheadLedger::Entry::kRestart);
  from_.saves->await();
  FailureEvent event;
  event.slot = slot;
  event.samples = from_.counters->samples;
  event.kind = FailureKind::kDivergence;
  const FailureDecision decision = from_.parts->recovery->on_failure(event);
  if (decision.action != FailureAction::kRollBack) {
    fail_run(
        fmt::format("training diverged again before slot {}, after {} roll-back(s) for it: lower "
                    "optimizer.lr, set run.clip, or let recovery '{}' try more often",
                    slot, world_.divergences, from_.parts->recovery.id()));
  }
  FailedEvent record;
  record.slot = slot;
  record.samples = from_.counters->samples;
  record.action = "diverged";
  const std::int64_t to = from_.recovery->roll_back(decision, slot, record);
  record.seconds = world_.clock->now() - began_s;
  record.account = from_.recovery->account();
  from_.host->log(LogLevel::kWarning,
                  fmt::format("training diverged: back from slot {} to slot {}", slot, to));
  if (from_.rank == 0 && world_.recovery_log) world_.recovery_log->failed(record, slot - to);
}

void Divergence::begin_again() {
  if (epoch_ > 0 && world_.divergences > 0) {
    from_.counters->divergences = world_.divergences;
    from_.counters->diverged_to = world_.diverged_to;
  } else if (epoch_ == 0) {
    world_.divergences = from_.counters->divergences;
    world_.diverged_to = from_.counters->diverged_to;
  }
  if (epoch_ == 0 || watch_ == nullptr || from_.counters->diverged_to != from_.counters->slot) return;
  const auto watch = from_.parts->recovery.guarded(*watch_);
  from_.counters->position +=
      watch->skipped_batches() * from_.parts->dataset->batch() * from_.weights->replicas();
  if (!watch->resets_optimizer()) return;
  from_.state->reset_optimizer();
  from_.counters->updates = 0;
}

}  // namespace tenon::train
