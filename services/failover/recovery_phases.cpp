#include "failover/recovery_phases.hpp"

#include "failover/snapshot.hpp"
#include "graph/memory_budget.hpp"

#include <fmt/format.h>

#include <numeric>

namespace tenon::train {

RecoveryPhases::RecoveryPhases(const RankContext& rank, const Sources& sources)
    : rank_(rank), from_(sources) {
  const config::CoreSettings& settings = rank_.world.settings;
  context_.rank = rank_.index;
  context_.ranks = static_cast<int>(settings.parallel.trainers());
  context_.workers = static_cast<int>(settings.parallel.workers);
  context_.servers = static_cast<int>(settings.parallel.servers);
  context_.steps = settings.run.steps;
  context_.samples = graph::saturating_product(
      graph::saturating_product(settings.run.steps, settings.run.accumulate),
      graph::saturating_product(rank_.parts.dataset->batch(), rank_.weights.replicas()));
  context_.seed = settings.run.seed;
  context_.shared_updates = rank_.weights.replicas() == 1 || rank_.state.members().shared;
  context_.outlives = rank_.world.place.survives;
  context_.failures = static_cast<std::int64_t>(rank_.world.start.next_failure);
  context_.live = &rank_.weights.live();
  context_.domains = from_.actions.domains();
  if (settings.emulate) {
    context_.emulated = true;
    context_.costs = settings.emulate->costs;
  }
  rank_.parts.recovery->bind(*this);
}

void RecoveryPhases::begin(bool from_memory) {
  World& world = rank_.world;
  Counters& counters = rank_.counters;
  if (rank_.epoch > world.start.first_epoch && world.start.roll_backs > 0) {
    counters.roll_backs = world.start.roll_backs;
    counters.rolled_back_to = world.start.rolled_back_to;
  } else if (rank_.epoch == world.start.first_epoch) {
    world.start.roll_backs = counters.roll_backs;
    world.start.rolled_back_to = counters.rolled_back_to;
  }
  RecoveryStart start;
  start.slot = counters.slot;
  start.roll_backs = counters.roll_backs;
  start.rolled_back_to = counters.rolled_back_to;
  start.rolled_back = rank_.epoch > world.start.first_epoch && counters.rolled_back_to == counters.slot;
  start.from_memory = from_memory;
  rank_.parts.recovery->start(start);
}

void RecoveryPhases::after_slot(std::int64_t slot, const SlotResult& result) {
  SlotOutcome outcome;
  outcome.slot = slot;
  outcome.gradient = result.kind == SlotKind::kGrad;
  outcome.applied = result.applied;
  outcome.loss_sum = result.loss_sum;
  outcome.loss_count = result.loss_count;
  outcome.gradient_norm = result.gradient_norm;
  rank_.parts.recovery->after_slot(outcome);
}

void RecoveryPhases::plan(Boundary& due) {
  plan_ = {};
  if (due.stop || due.slot == from_.progress.first_slot) return;
  plan_ = rank_.parts.recovery->plan_boundary(due.moment);
  due.keep_nothing |= plan_.rolls_back;
  due.fails |= plan_.rolls_back;
  due.acts |= plan_.acts || plan_.rolls_back;
}

void RecoveryPhases::at_boundary(Boundary& due) {
  if (plan_.acts && !due.stop) act(due.moment);
  if (plan_.rolls_back) roll_back(due.slot);
}

void RecoveryPhases::act(const SaveMoment& moment) {
  const double began_s = rank_.world.clock->now();
  const PhaseScope part(&from_.account, Phase::kSave);
  const WallTimeScope entry(rank_.wall_time(), WallTimeBreakdown::Entry::kSave);
  const SpanScope span(&from_.spans, "save", "policy");
  rank_.parts.recovery->at_boundary(moment);
  rank_.lines.stood_still(rank_.world.clock->now() - began_s);
}

void RecoveryPhases::roll_back(std::int64_t slot) {
  const double began_s = rank_.world.clock->now();
  const WallTimeScope entry(rank_.wall_time(), WallTimeBreakdown::Entry::kRestart);
  FailedEvent record;
  record.slot = slot;
  record.samples = rank_.counters.samples;
  record.action = plan_.reason.empty() ? "rolled_back" : plan_.reason;
  const FailureDecision decision{FailureAction::kRollBack, plan_.from_slot};
  const std::int64_t to = from_.actions.roll_back(decision, slot, record, true);
  record.seconds = rank_.world.clock->now() - began_s;
  record.account = from_.actions.account();
  rank_.host.log(LogLevel::kWarning, fmt::format("recovery '{}' rolls back from slot {} to slot {}: {}",
                                                 rank_.parts.recovery.id(), slot, to, record.action));
  if (rank_.index == 0 && rank_.world.record.recovery_log)
    rank_.world.record.recovery_log->failed(record, slot - to);
}

void RecoveryPhases::sum(std::span<double> values) {
  TensorView view;
  view.data = values.data();
  view.dtype = DType::kF64;
  view.shape = Shape{static_cast<std::int64_t>(values.size())};
  if (from_.mesh != nullptr) from_.mesh->all_reduce(view, ReduceOp::kSum);
  if (Communicator* group = rank_.weights.group(Purpose::kStatistics))
    group->all_reduce(view, ReduceOp::kSum);
}

std::vector<std::string> RecoveryPhases::gather(const std::string& text) {
  return rank_.world.links.end_hub->exchange(rank_.index, text);
}

std::unique_ptr<Communicator> RecoveryPhases::open(std::string_view name) {
  if (!rank_.world.links.transport || context_.ranks == 1) return nullptr;
  std::vector<int> all(context_.ranks);
  std::iota(all.begin(), all.end(), 0);
  return traced(rank_.world.links.transport->open(rank_.index, {all, name, Purpose::kRecovery, rank_.epoch}),
                from_.watch, all, name);
}

std::string RecoveryPhases::capture() {
  rank_.lines.note();
  Snapshot held = take_snapshot(rank_.state, nullptr);
  held.boundary_done = true;
  return pack(held);
}

void RecoveryPhases::restore(const std::string& captured) {
  Snapshot held = unpack(captured);
  give_back(rank_.state, held);
  rank_.lines.take();
}

std::shared_ptr<void>& RecoveryPhases::kept(std::string_view name) {
  return rank_.world.survival.kept[std::string(name)];
}

void RecoveryPhases::reset_optimizer() {
  rank_.state.reset_optimizer();
  rank_.counters.updates = 0;
}

void RecoveryPhases::skip_batches(std::int64_t batches) {
  rank_.counters.position += batches * rank_.parts.dataset->batch() * rank_.weights.replicas();
}

void RecoveryPhases::report(std::string_view name, double value) {
  rank_.lines.add(rank_.counters.slot, Split::kTrain, name, value);
}

}  // namespace tenon::train
