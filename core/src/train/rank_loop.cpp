// The run of a rank: slots, what happens between them, and the end with hashes and the summary.
#include "train/rank.hpp"
#include "train/weights_hash.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>
#include <utility>

namespace tenon::train {

bool Rank::run() {
  open_folder();
  if (recovery_->rolls_back()) return true;  // so answered the policy to the death of other ranks
  survivor_->begin();
  for (Service* service : services_) service->start();
  RunInfo info;
  info.name = world_.settings.run.name.value_or("");
  info.folder = world_.folder.path;
  info.first_slot = slots_.progress().first_slot;
  info.steps = world_.settings.run.steps;
  info.ranks = static_cast<int>(world_.settings.parallel.trainers());
  info.rank = rank_;
  for (const ParameterInfo& p : weights_->live().parameters()) {
    if (p.spec.trainable && p.spec.role != Role::kBuffer) info.parameters += p.spec.shape.elements();
  }
  info.terminal = world_.request.terminal;
  info.quiet = world_.request.quiet;
  lines_.start_times();
  observers_->start(info);
  observers_->tables(row_tables());
  if (OverheadLedger* mine = ledger()) mine->enter(OverheadLedger::Entry::kWork);
  try {
    if (requests_ != nullptr) requests_->start(*weights_, layer_watch_);
    if (workers_.size() == 1) {
      loop(*workers_[0]);
    } else {
      run_workers();
    }
    if (requests_ != nullptr) requests_->end();
    if (recovery_->rolls_back()) {
      leave();
    } else {
      finish();
    }
  } catch (const std::exception& error) {
    if (stands_still_) {
      gate_.take_over();
      gate_.resume();
    }
    if (rank_ == 0) record_progress();
    observers_->finish("failed", error.what());
    throw;
  }
  return recovery_->rolls_back();
}

void Rank::loop(Worker& worker) {
  while (const auto ticket = slots_.claim(*this)) {
    const SlotQueue::Inside in_slot(slots_);
    const InsideGate inside(gate_);
    world_.phase.enter("compute");
    if (calibration_due(ticket->slot)) calibrate();
    finish_slot(*ticket, run_slot(worker, *ticket));
  }
}

// A deadline error names the phase in which this rank was waiting.
SlotResult Rank::run_slot(Worker& worker, const SlotQueue::Ticket& ticket) {
  const auto next_update = [this] {
    const auto lock = slots_.lock();
    return ++counters_.updates;
  };
  try {
    try {
      return worker.run(ticket.slot, ticket.position, ticket.rate_scale, next_update);
    } catch (...) {
      rethrow_noted_call();
    }
  } catch (const DeadlineError& error) {
    throw DeadlineError(
        fmt::format("rank {} in slot {}, during {}: {}", rank_, ticket.slot, worker.phase(), error.what()));
  }
}

bool Rank::calibration_due(std::int64_t slot) {
  const int slots = workers_[0]->cost().calibration_slots();
  return slots > 0 && slot >= slots_.progress().first_slot + slots;
}

void Rank::calibrate() {
  ComputeCost& cost = workers_[0]->cost();
  cost.calibrate(world_.end_hub->exchange(rank_, cost.measured()));
  if (rank_ != 0) return;
  const PieceSeconds& seconds = cost.costs();
  world_.manifest.calibration = {{"forward_seconds", seconds.forward},
                                 {"backward_seconds", seconds.backward},
                                 {"optimizer_seconds", seconds.update},
                                 {"mix_seconds", seconds.mix}};
  write_manifest(*world_.files, world_.folder.path, world_.manifest);
}

void Rank::run_workers() {
  std::vector<int> participants;
  for (std::size_t w = 1; w < workers_.size(); ++w) {
    participants.push_back(
        world_.clock->announce(replica_, static_cast<int>(w), fmt::format("worker {}", w)));
  }
  const int threads = parallel_threads();
  std::vector<std::thread> threads_of_workers;
  for (std::size_t w = 1; w < workers_.size(); ++w) {
    threads_of_workers.emplace_back([this, w, threads, id = participants[w - 1]] {
      world_.clock->enter(id);
      set_parallel_threads(threads);
      try {
        try {
          loop(*workers_[w]);
        } catch (...) {
          rethrow_noted_call();
        }
      } catch (const CancelledError&) {
      } catch (const Error& error) {
        world_.control->fail(rank_, error.exit_status(), error.what());
      } catch (const std::exception& error) {
        world_.control->fail(rank_, 1, error.what());
      }
      slots_.end_worker();
      world_.clock->leave();
    });
  }
  std::exception_ptr failure;
  try {
    loop(*workers_[0]);
  } catch (...) {
    // The other workers must hear of it now, or joining them would wait for their deadline.
    try {
      rethrow_noted_call();
    } catch (const Error& error) {
      world_.control->fail(rank_, error.exit_status(), error.what());
      failure = std::current_exception();
    } catch (const std::exception& error) {
      world_.control->fail(rank_, 1, error.what());
      failure = std::current_exception();
    }
  }
  slots_.await_ended(threads_of_workers.size());
  for (std::thread& thread : threads_of_workers) thread.join();
  if (failure) std::rethrow_exception(failure);
  if (world_.control->failed()) throw CancelledError(world_.control->failure());
}

// A plan is pure, so the position can move before the slot runs.
SlotQueue::Ticket Rank::take(std::int64_t slot) {
  for (Service* service : services_) service->before_slot(slot);
  SlotStart start{slot};
  parts_->recovery->before_slot(start);
  const SlotQueue::Ticket ticket{slot, counters_.position, start.rate_scale};
  const SlotPlan plan = parts_->sync->plan({slot, replica_, 0});
  if (plan.kind == SlotKind::kGrad || plan.consumes_data) counters_.position += slot_samples();
  host_.set_slot(slot);
  return ticket;
}

/// Of bytes and seconds, as rank 0 counts them.
bool Rank::budget_spent() const {
  const config::RunSettings& run = world_.settings.run;
  return (run.max_bytes && lines_.bytes_sent() >= static_cast<std::uint64_t>(*run.max_bytes)) ||
         (run.max_seconds && lines_.wall_s() >= *run.max_seconds);
}

Boundary Rank::due(std::int64_t slot) {
  const config::RunSettings& run = world_.settings.run;
  Boundary due;
  due.slot = slot;
  due.first_time = slot > slots_.progress().first_slot || slots_.progress().boundary_again;
  if (rank_ == 0 && budget_spent() && world_.stop_reason() == StopReason::kNone)
    world_.ask_to_stop(StopReason::kBudget, "budget spent");
  for (Service* service : services_) service->ask(due);
  due.asked = world_.control->begin_slot(rank_, slot);
  due.interrupted = (due.asked & kControlInterrupt) != 0;
  if (due.interrupted) world_.note_interrupt();
  const bool budget = (run.max_samples && counters_.samples >= *run.max_samples) ||
                      (run.max_tokens && counters_.tokens >= *run.max_tokens);
  due.stop = slot >= run.steps || budget || (due.asked & kControlStop) != 0;
  due.evaluate = (due.asked & kControlEvaluate) != 0 || (due.stop && due.first_time);
  // A run that was stopped or killed between a save and an evaluation makes up for it.
  if (due.first_time || counters_.lines.evaluated < slot)
    due.evaluate |= slot > 0 && run.eval_every > 0 && slot % run.eval_every == 0;
  if (due.interrupted) due.evaluate = run.evaluate_on_stop && due.first_time;
  for (Service* service : services_) service->plan(due);
  return due;
}

/// An evaluation that a request to stop ends leaves no numbers, and the run ends here. All ranks agree.
void Rank::evaluate(Boundary& due) {
  world_.phase.enter("evaluate");
  const PartScope part(&account_, TimePart::kEvaluate);
  const SpanScope span(&spans_, "evaluate", "evaluate");
  const bool alone = world_.settings.parallel.trainers() == 1;
  BreakAgreement agreement(alone ? nullptr : world_.training_hub.get(), rank_,
                           [&] { return !due.interrupted && world_.survival.stop.asked(); });
  const auto values = evaluator_->run(evaluated(), due.slot, [&] { return agreement.breaks(); });
  if (values) {
    for (const EvaluationValue& value : *values) {
      lines_.add(due.slot, Split::kVal, value.metric, value.value);
      parts_->recovery->on_evaluation(due.slot, value.metric, value.value);
    }
    if (rank_ == 0) world_.metrics->flush();
    counters_.lines.evaluated = due.slot;
    return;
  }
  host_.log(LogLevel::kInfo,
            fmt::format("the evaluation of slot {} was ended: the run is asked to stop", due.slot));
  world_.note_interrupt();
  due.stop |= !due.fails;
}

void Rank::act(Boundary& due) {
  const HeldPause pause(gate_);
  if (requests_ != nullptr) {
    requests_->settle();
    report_accesses();
  }
  parts_->sync->quiesce();  // transfers in flight end unapplied
  if (due.evaluate && !due.interrupted) evaluate(due);
  for (Service* service : services_) service->at_boundary(due);
  // A request to stop waits for the save first: the evaluation can be made up for.
  if (due.evaluate && due.interrupted) evaluate(due);
  // The hashes of the run are those of what was evaluated and saved last, so actors do not go on in between.
  if (due.stop) {
    gate_.pause();
    stands_still_ = true;
  } else if (requests_ != nullptr) {
    requests_->wait_for_all();
  }
}

void Rank::report(const RowGradient& rows) {
  parts_->recovery->on_accesses(rows.parameter, rows.ids, rows.counts);
  for (Service* service : services_) service->accessed(rows);
  observers_->accesses(rows);
}

void Rank::report_accesses() {
  if (requests_ != nullptr) requests_->server().take_accesses([&](const RowGradient& rows) { report(rows); });
}

void Rank::finish_slot(const SlotQueue::Ticket& ticket, const SlotResult& result) {
  const auto lock = slots_.lock();
  ++counters_.slot;
  if (OverheadLedger* mine = ledger()) mine->slots_done(counters_.slot);
  const std::int64_t samples = result.micros * parts_->dataset->batch() * weights_->replicas();
  counters_.samples += samples;
  counters_.tokens += samples * parts_->dataset->info().tokens_per_sample;
  if (result.kind == SlotKind::kGrad && !result.applied) ++counters_.lines.skipped_updates;
  counters_.lines.loss_sum += result.loss_sum;
  counters_.lines.loss_count += result.loss_count;
  for (const RowGradient& rows : result.rows) report(rows);
  report_accesses();
  // Replicas that update alone meet elsewhere, and their strategy calls this there. From here on an
  // interruption finds a slot that is done.
  if (result.applied && state_->members().shared) weights_->sync_buffers();
  for (Service* service : services_) service->after_slot(ticket.slot, result);
  SlotRecord record;
  record.slot = ticket.slot;
  record.applied = result.applied;
  record.loss = result.loss_count > 0 ? result.loss_sum / result.loss_count : 0;
  record.lr = result.lr;
  record.gradient_norm = result.gradient_norm;
  record.seconds = result.seconds;
  record.samples = counters_.samples;
  record.tokens = counters_.tokens;
  observers_->slot(record);
  if (rank_ == 0) world_.metrics->tick();
}

void Rank::record_progress() {
  RunResult& result = world_.result;
  result.steps = counters_.slot;
  result.samples = counters_.samples;
  result.tokens = counters_.tokens;
  result.wall_s = lines_.wall_s();
  // The world adds what the rank's threads waited.
  result.stall_s = lines_.stall_s() - lines_.actors_idle_s();
}

/// In place of finish(): nothing of this rank is the run's result.
void Rank::leave() {
  if (OverheadLedger* mine = ledger()) mine->enter(OverheadLedger::Entry::kRestart);
  if (rank_ == 0) record_progress();
  observers_->finish("rolled back", "");
}

void Rank::finish() {
  {
    const PartScope part(&account_, TimePart::kSave);
    const LedgerScope entry(ledger(), OverheadLedger::Entry::kSave);
    saves_->await();
  }
  // Hashes: every rank's digests to rank 0; weights of the evaluation set of replica 0.
  if (stands_still_) gate_.take_over();
  std::optional<HeldPause> pause(gate_);
  if (std::exchange(stands_still_, false)) gate_.resume();
  parts_->sync->quiesce();
  const auto times = world_.end_hub->exchange(
      rank_, rank_time_text(lines_.time_so_far(requests_ != nullptr ? &requests_->server() : nullptr)));
  const auto recorded = world_.end_hub->exchange(rank_, distributions_.text());
  const auto all = world_.end_hub->exchange(rank_, state_->digests());
  repetition_->record();
  SetLayout layout{mesh_->all(), world_.settings.parallel.grid, nullptr, replica_};
  if (rows_->cut()) layout.replicas = weights_->group(Purpose::kState);
  const std::string weights = logical_digests(evaluated(), *parts_->device, layout);
  const auto all_weights = world_.end_hub->exchange(rank_, weights);
  pause.reset();
  const std::string_view status = world_.stop_reason() == StopReason::kSignal ? "interrupted" : "completed";
  if (rank_ != 0) return observers_->finish(status, saves_->error());
  StateHasher state_hash;
  for (const std::string& digests : all) state_hash.merge(digests);
  StateHasher weights_hash;
  for (const std::string& digests : all_weights) {
    if (!digests.empty()) weights_hash.merge(digests);
  }

  if (auto* const gathered = parts_->precision.offered<PrecisionMetrics>()) {
    parts_->precision.guarded(*gathered)->metrics([this](std::string_view name, double value) {
      lines_.add(counters_.slot, Split::kTrain, name, value);
    });
  }
  recovery_->end(status);
  record_progress();
  RunResult& result = world_.result;
  result.state_hash = state_hash.hex();
  result.weights_hash = weights_hash.hex();
  if (world_.transport) {
    for (const std::string& text : times) result.communication.push_back(read_rank_time(text));
    if (const std::string slow = slow_rank_text(result.communication); !slow.empty())
      host_.log(LogLevel::kWarning, slow);
  }
  for (const std::string& text : recorded) merge_distributions(result.distributions, text);
  for (const auto& worker : workers_) {
    for (const auto& [format, count] : worker->operands()) result.quantized_operands[format] += count;
  }
  if (!saves_->error().empty()) {
    result.error = saves_->error() +
                   "; training went on, but the newest checkpoint is older than the end. Make room, then "
                   "continue with --resume";
    result.exit_status = 1;
  }
  observers_->finish(status, result.error);
}

}  // namespace tenon::train
