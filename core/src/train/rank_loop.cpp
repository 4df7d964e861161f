// Slots and what happens between them. Workers claim slot numbers; whoever claims a slot at whose boundary
// something is due waits until the others are idle and acts for all.
#include "train/rank.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <thread>

namespace tenon::train {
namespace {

constexpr double kHour = 3600;

}  // namespace

bool Rank::run() {
  open_folder();
  if (rolls_back_) return true;  // so answered the policy to the death of other ranks
  has_state_ = true;
  world_.survival.held.reset();
  const std::int64_t state_bytes = emulated_ != nullptr ? bytes_of_all_ranks() : 0;
  lines_.begin();
  saves_->begin(state_bytes);
  RunInfo info;
  info.name = world_.settings.run.name.value_or("");
  info.folder = world_.folder.path;
  info.first_slot = first_slot_;
  info.steps = world_.settings.run.steps;
  info.ranks = static_cast<int>(world_.settings.parallel.trainers());
  info.rank = rank_;
  for (const ParameterInfo& p : weights_->live().parameters()) {
    if (p.spec.trainable && p.spec.role != Role::kBuffer) info.parameters += p.spec.shape.elements();
  }
  info.terminal = world_.request.terminal;
  info.quiet = world_.request.quiet;
  lines_.start_times();
  if (why_not_repeated().empty()) workers_[0]->repeat_next();
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
    if (rolls_back_) {
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
  return rolls_back_;
}

void Rank::loop(Worker& worker) {
  while (const auto ticket = claim()) {
    world_.phase.enter("compute");
    const auto next_update = [this] {
      const std::lock_guard lock(mutex_);
      return ++counters_.updates;
    };
    const auto leave_slot = [this] {
      const std::lock_guard lock(mutex_);
      --in_flight_;
      quiet_.notify(*world_.clock, world_.clock->now());
    };
    try {
      const InsideGate inside(gate_);
      if (calibration_due(ticket->slot)) calibrate();
      const SlotResult result = run_slot(worker, *ticket, next_update);
      finish_slot(*ticket, result);
    } catch (...) {
      leave_slot();
      throw;
    }
    leave_slot();
  }
}

// Who waits says in which part of the slot: that is where the late rank is missed.
SlotResult Rank::run_slot(Worker& worker, const Ticket& ticket,
                          const std::function<std::int64_t()>& next_update) {
  try {
    try {
      const SlotResult result = worker.run(ticket.slot, ticket.position, next_update);
      warn_of_repetition(worker, ticket.slot);
      return result;
    } catch (...) {
      rethrow_noted_call();
    }
  } catch (const DeadlineError& error) {
    throw DeadlineError(
        fmt::format("rank {} in slot {}, during {}: {}", rank_, ticket.slot, worker.phase(), error.what()));
  }
}

void Rank::warn_of_repetition(const Worker& worker, std::int64_t slot) {
  const std::optional<RepeatedSlot>& repeated = worker.repeated();
  if (!repeated || repeated->slot != slot || repeated->differs.empty()) return;
  const std::string text = fmt::format(
      "the gradient of '{}' of slot {} has other bits when it is computed twice: this run is not repeatable. "
      "Something reads memory that it did not write, or depends on how threads meet; compare with other "
      "kernels (device.kernels) or one thread",
      repeated->differs, slot);
  host_.log(LogLevel::kWarning, text);
  if (!world_.request.quiet) std::fprintf(stderr, "tenon: warning: rank %d: %s\n", rank_, text.c_str());
}

bool Rank::calibration_due(std::int64_t slot) {
  const int slots = workers_[0]->cost().calibration_slots();
  return slots > 0 && slot >= first_slot_ + slots;
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
      {
        const std::lock_guard lock(mutex_);
        ++ended_;
        quiet_.notify(*world_.clock, world_.clock->now());
      }
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
  // Waiting on the clock, not in join(), gives the others their turns, and no actor a turn more than they
  // need.
  std::unique_lock lock(mutex_);
  const WaitDeadline deadline(host_.deadline());
  while (ended_ < threads_of_workers.size()) {
    if (quiet_.wait(lock, *world_.clock, deadline, "the other workers to end") == ClockEvent::Outcome::kLate)
      break;
  }
  lock.unlock();
  for (std::thread& thread : threads_of_workers) thread.join();
  if (failure) std::rethrow_exception(failure);
  if (world_.control->failed()) throw CancelledError(world_.control->failure());
}

std::optional<Rank::Ticket> Rank::claim() {
  std::unique_lock lock(mutex_);
  while (!done_ && boundary_done_ < next_slot_) {
    if (acting_) {
      // Each wait of whoever acts has a deadline of its own.
      quiet_.wait(lock, *world_.clock, WaitDeadline(host_.deadline()), "the worker at the slot boundary");
      continue;
    }
    acting_ = true;
    const auto acted = [&] {
      acting_ = false;
      quiet_.notify(*world_.clock, world_.clock->now());
    };
    try {
      pass_boundary(lock);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      acted();
      throw;
    }
    acted();
  }
  if (done_) return std::nullopt;
  if (marks_slots_) mark_slot(*state_, next_slot_, mark_);
  Ticket ticket{next_slot_++, counters_.position};
  // A plan is pure, so the position can move before the slot runs.
  const SlotPlan plan = parts_->sync->plan({ticket.slot, replica_, 0});
  if (plan.kind == SlotKind::kGrad || plan.consumes_data) counters_.position += slot_samples();
  ++in_flight_;
  host_.set_slot(ticket.slot);
  return ticket;
}

// One worker at a time. The lock is open while it acts: others may need it to see that they must wait.
void Rank::pass_boundary(std::unique_lock<std::mutex>& lock) {
  const std::int64_t slot = next_slot_;
  Boundary due = boundary(slot);
  const WaitDeadline deadline(host_.deadline());
  while (due.quiet() && in_flight_ > 0) {
    if (quiet_.wait(lock, *world_.clock, deadline, "the other workers at a slot boundary") ==
        ClockEvent::Outcome::kLate) {
      throw DeadlineError(
          fmt::format("{} worker(s) did not end their slot within {} s", in_flight_, host_.deadline()));
    }
  }
  if (due.quiet()) {
    lock.unlock();
    act(due, slot);
    lock.lock();
  }
  boundary_done_ = slot;
  done_ = due.stop || rolls_back_;
}

Rank::Boundary Rank::boundary(std::int64_t slot) {
  const config::RunSettings& run = world_.settings.run;
  Boundary due;
  if (rank_ == 0) {
    const std::uint64_t bytes = run.max_bytes ? lines_.bytes_sent() : 0;
    const bool spent = (run.max_bytes && bytes >= static_cast<std::uint64_t>(*run.max_bytes)) ||
                       (run.max_seconds && lines_.wall_s() >= *run.max_seconds);
    if (spent && world_.stop_reason() == StopReason::kNone)
      world_.ask_to_stop(StopReason::kBudget, "budget spent");
  }
  const bool saves = parts_->recovery->keep() > 0;
  const bool first_time = slot > first_slot_ || boundary_again_;
  const bool can_save = due.can_save = saves && first_time;
  SaveMoment moment{slot, run.steps, counters_.samples, lines_.wall_s(), saves_->last_s()};
  if (emulated_ != nullptr) {
    moment.seconds = emulated_->hour(slot) * kHour;
    moment.same_clock = true;
  }
  if (rank_ == 0 && can_save && slot < run.steps && saves_->timer_due(moment)) {
    world_.control->request(kControlSave, "the recovery policy's timer");
  }
  const std::uint32_t actions = world_.control->begin_slot(rank_, slot);
  if ((actions & kControlInterrupt) != 0) world_.note_interrupt();
  const bool budget = (run.max_samples && counters_.samples >= *run.max_samples) ||
                      (run.max_tokens && counters_.tokens >= *run.max_tokens);
  due.stop = slot >= run.steps || budget || (actions & kControlStop) != 0;
  due.interrupted = (actions & kControlInterrupt) != 0;
  due.evaluate = (actions & kControlEvaluate) != 0 || (due.stop && first_time);
  // A run that was stopped or killed between a save and an evaluation makes up for it.
  if (first_time || counters_.lines.evaluated < slot)
    due.evaluate |= slot > 0 && run.eval_every > 0 && slot % run.eval_every == 0;
  if (due.interrupted) due.evaluate = run.evaluate_on_stop && first_time;
  // At slot 0 there is nothing to lose, but increments need something to lie on.
  if (can_save || (saves && slot == 0)) {
    moment.requested = (actions & kControlSave) != 0;
    due.moment = moment;
    due.save = parts_->recovery->plan_save(moment);
    if (due.stop) keep_all(due);
    if (moment.requested && !due.save.save) force_save(due);
  }
  due.copies = peers_ != nullptr && !due.stop && slot > first_slot_ && peers_->due(moment);
  due.diverged = !due.stop && diverged_;
  if (due.diverged) due.save = {};  // what went wrong is not to be kept
  due.failure = !due.stop && !due.diverged && emulated_ != nullptr && emulated_->due(slot) != nullptr;
  return due;
}

void Rank::force_save(Boundary& due) {
  due.save = {};
  due.save.save = due.moment.forced = true;
}

/// Whoever continues a run that was cut short expects the bits of one that was not.
void Rank::keep_all(Boundary& due) const {
  const bool cut_short = due.moment.slot < world_.settings.run.steps;
  if (cut_short && !(due.save.save && due.save.consistent)) force_save(due);
}

/// An evaluation that a request to stop ends leaves no numbers, and the run ends here. All ranks agree.
void Rank::evaluate(Boundary& due, std::int64_t slot) {
  world_.phase.enter("evaluate");
  const PartScope part(&account_, TimePart::kEvaluate);
  const SpanScope span(&spans_, "evaluate", "evaluate");
  const bool alone = world_.settings.parallel.trainers() == 1;
  BreakAgreement agreement(alone ? nullptr : world_.training_hub.get(), rank_,
                           [&] { return !due.interrupted && world_.survival.stop.asked(); });
  const auto values = evaluator_->run(evaluated(), slot, [&] { return agreement.breaks(); });
  if (values) {
    for (const EvaluationValue& value : *values) lines_.add(slot, Split::kVal, value.metric, value.value);
    if (rank_ == 0) world_.metrics->flush();
    counters_.lines.evaluated = slot;
    return;
  }
  host_.log(LogLevel::kInfo,
            fmt::format("the evaluation of slot {} was ended: the run is asked to stop", slot));
  world_.note_interrupt();
  if (due.stop || due.diverged || due.failure) return;
  due.stop = true;
  due.copies = false;
  if (due.can_save) keep_all(due);
}

void Rank::act(Boundary& due, std::int64_t slot) {
  const HeldPause pause(gate_);
  if (requests_ != nullptr) {
    requests_->settle();
    report_accesses();
  }
  parts_->sync->quiesce();  // transfers in flight end unapplied
  if (due.evaluate && !due.interrupted) evaluate(due, slot);
  if (due.save.save) {
    std::optional<StopRequest::Saving> saving;
    if (due.stop) saving.emplace(world_.survival.stop);
    stall_s_ += saves_->save(due.save, due.moment, due.stop);
  }
  // Who asked for the end may not wait for more than what must not be lost.
  if (due.evaluate && due.interrupted) evaluate(due, slot);
  if (due.copies) copy_to_peers();
  if (due.failure) meet_failures(slot);
  if (due.diverged) meet_divergence(slot);
  // The hashes of the run are those of what was evaluated and saved last, so actors do not go on in between.
  if (due.stop) {
    gate_.pause();
    stands_still_ = true;
  } else if (requests_ != nullptr) {
    requests_->wait_for_all();
  }
}

void Rank::report_accesses() {
  if (requests_ == nullptr) return;
  requests_->server().take_accesses([&](const RowGradient& rows) {
    parts_->recovery->on_accesses(rows.parameter, rows.ids, rows.counts);
    if (emulated_ != nullptr) emulated_->accessed(rows.parameter, rows.ids, rows.counts);
    observers_->accesses(rows);
  });
}

void Rank::finish_slot(const Ticket& ticket, const SlotResult& result) {
  const std::lock_guard lock(mutex_);
  ++counters_.slot;
  if (OverheadLedger* mine = ledger()) mine->slots_done(counters_.slot);
  const std::int64_t samples = result.micros * parts_->dataset->batch() * weights_->replicas();
  counters_.samples += samples;
  counters_.tokens += samples * parts_->dataset->info().tokens_per_sample;
  if (result.kind == SlotKind::kGrad && !result.applied) ++counters_.lines.skipped_updates;
  counters_.lines.loss_sum += result.loss_sum;
  counters_.lines.loss_count += result.loss_count;
  for (const RowGradient& rows : result.rows) {
    parts_->recovery->on_accesses(rows.parameter, rows.ids, rows.counts);
    if (emulated_ != nullptr) emulated_->accessed(rows.parameter, rows.ids, rows.counts);
    observers_->accesses(rows);
  }
  report_accesses();
  // Replicas that update alone meet elsewhere, and their strategy calls this there. From here on an
  // interruption finds a slot that is done.
  if (result.applied && state_->members().shared) weights_->sync_buffers();
  lines_.slot_done(ticket.slot, result);
  watch_divergence(ticket, result);
  saves_->take_results();
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

}  // namespace tenon::train
