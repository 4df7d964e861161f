// One rank of a run, from the state of a checkpoint to the end: slots, what happens between them, hashes and
// the summary.
#include "run/rank.hpp"

#include "base/digests.hpp"
#include "base/process_facts.hpp"
#include "loop/parts.hpp"
#include "loop/replica.hpp"
#include "plugin/guard.hpp"
#include "record/run_folder.hpp"
#include "run/weights_hash.hpp"
#include "run/world.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sync.hpp>
#include <tenon/sync_extra.hpp>
#include <tenon/tier.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <tuple>
#include <utility>

namespace tenon::train {

// The services of a rank.

namespace {

/// Why the run cannot go on from what its ranks hold in memory; "" if it can.
std::string unrecoverable_reason(const World& world, const Trainer& trainer) {
  if (trainer.groups().all() != nullptr) return "parts of one model depend on each other";
  if (!trainer.shares_weights()) return "its replicas differ";
  if (!trainer.weights().created_sets().empty()) return "its sync strategy keeps tensors of each replica";
  if (trainer.workers().size() > 1 || world.settings.parallel.servers > 0 || trainer.requests() != nullptr)
    return "its ranks are not at one slot";
  if (world.settings.emulate) return "its failures are emulated";
  if (trainer.on_policy() != nullptr) return "each rank keeps samples of its own that the model made";
  return "";
}

}  // namespace

// The policy hears which run it is in before anything else asks it.
RankServices::RankServices(World& world, int rank, Trainer& trainer, Progress& progress) {
  const config::CoreSettings& settings = world.settings;
  if (settings.emulate) {
    if (settings.parallel.servers > 0)
      fail_config("[emulate]: what servers hold cannot be rolled back; set parallel.servers = 0");
    emulated_ = std::make_unique<EmulatedFailures>(*settings.emulate, settings.run.steps,
                                                   trainer.weights().live().parameters());
    emulated_->start_with(world.start.next_failure);
  }
  Instruments& with = trainer.instruments();
  const RankContext context{world,
                            rank,
                            world.start.epoch,
                            with.host,
                            trainer.parts(),
                            trainer.weights(),
                            trainer.state(),
                            trainer.counters(),
                            trainer.lines(),
                            emulated_.get()};
  actions_ = std::make_unique<RecoveryActions>(context);
  phases_ = std::make_unique<RecoveryPhases>(
      context, RecoveryPhases::Sources{*actions_, with.account, with.spans, progress, with.watch,
                                       trainer.groups().all()});
  saves_ = std::make_unique<Saves>(context, with.account, with.spans, trainer.shape());
  survivor_ = std::make_unique<Survivor>(
      context, Survivor::Sources{trainer.updater(), with.faults, *saves_, *actions_, *phases_, progress,
                                 unrecoverable_reason(world, trainer)});
  repetition_ = std::make_unique<Repetition>(
      context,
      Repetition::Shape{trainer.requests() != nullptr, trainer.rows().active(),
                        trainer.groups().all() != nullptr, trainer.workers().size()},
      *trainer.workers().front(), progress);
  canary_ = std::make_unique<Canary>(context, trainer, *saves_, repetition_->nondeterminism());
  on_policy_ = std::make_unique<OnPolicy>(context, trainer);
  prefetch_ = std::make_unique<Prefetch>(context, trainer);
  // Samples are drawn last: a checkpoint of a slot before which they are is that of before them.
  all_ = {&trainer.lines(), saves_.get(),      canary_.get(),    survivor_.get(),
          phases_.get(),    repetition_.get(), on_policy_.get(), prefetch_.get()};
  if (settings.run.witness_every > 0) {
    witness_ = std::make_unique<WitnessRecorder>(context, *trainer.workers().front(), progress);
    all_.push_back(witness_.get());
  }
  if (emulated_ == nullptr) return;
  outages_ = std::make_unique<EmulatedOutages>(context, *actions_);
  all_.push_back(outages_.get());
}

namespace {

[[noreturn]] void refuse_servers(const World& world, std::string_view who, std::string_view why) {
  fail_config(
      fmt::format("parallel.servers = {}: {} places nothing on servers{}{}; set it to 0, or choose "
                  "a strategy around a centre that servers hold",
                  world.settings.parallel.servers, who, why.empty() ? "" : ": ", why));
}

/// Servers are no part of the exchange after which a run appears on disk, so trainers refuse for them.
void require_work_for_servers(World& world, const Part<Sync>& sync) {
  if (world.settings.parallel.servers == 0) return;
  const config::CheckedComponent* const named = world.checked.component("sync");
  if (named == nullptr) refuse_servers(world, "a run without a [sync] table", "");
  auto* const serving = sync.offered<SyncServer>();
  const std::string who = fmt::format("sync strategy '{}'", named->type);
  if (serving == nullptr) refuse_servers(world, who, "");
  if (const std::string_view why = sync.guarded(*serving)->declines(); !why.empty())
    refuse_servers(world, who, why);
}

}  // namespace

// The rank.

Rank::Rank(World& world, int rank)
    : world_(world),
      rank_(rank),
      epoch_(world.start.epoch),
      trainer_(world, rank),
      with_(trainer_.instruments()),
      parts_(trainer_.parts()),
      counters_(trainer_.counters()),
      lines_(trainer_.lines()),
      slots_(*world.clock, world.settings.run.deadline) {
  try {
    require_work_for_servers(world, parts_.sync);
    services_ = std::make_unique<RankServices>(world, rank, trainer_, slots_.progress());
    const bool power = std::ranges::any_of(
        parts_.checked, [](const config::CheckedComponent& part) { return part.kind == Power::kKind; });
    if (power) power_ = std::make_unique<RunPower>(world, rank, parts_, with_.host);
  } catch (...) {
    rethrow_noted_call();  // while the options live, whose places an error may name
  }
}

void Rank::open_folder() {
  with_.open_log(world_.record.folder.path);
  if (trainer_.requests() != nullptr) trainer_.requests()->server().set_log(with_.log.get());
  const std::string& recorded = world_.record.recorded_kernels;
  const std::string chosen(parts_.device->kernel_choice());
  if (!recorded.empty() && chosen != recorded && world_.settings.device.kernels == "auto") {
    fail_config(fmt::format(
        "{}: this run was computed with kernels '{}', and this machine would continue with '{}', so the bits "
        "would differ; set device.kernels to accept that, e.g. --set device.kernels={}",
        world_.record.folder.path, recorded, chosen, chosen.substr(0, chosen.find('+'))));
  }
  if (rank_ == 0 && epoch_ == 0) {
    world_.record.result.nondeterminism = services_->repetition().nondeterminism();
    if (!world_.record.result.nondeterminism.empty())
      world_.record.notes.push_back("this run is not repeatable bit by bit: " +
                                    world_.record.result.nondeterminism);
    // Until the end has shown it.
    if (world_.record.result.nondeterminism.empty())
      world_.record.result.nondeterminism = "not checked: the run did not come to its end";
    for (std::string& warning : trainer_.warnings()) world_.record.notes.push_back(std::move(warning));
    for (const std::string& note : world_.record.notes) {
      with_.host.log(LogLevel::kWarning, note);
      if (!world_.request.quiet) std::fprintf(stderr, "tenon: warning: %s\n", note.c_str());
    }
    if (!world_.record.device_choice.empty()) with_.host.log(LogLevel::kInfo, world_.record.device_choice);
    world_.record.begin_manifest(describe());
  }
  restore();
}

void Rank::restore() {
  const WallTimeScope entry(wall_time(), WallTimeBreakdown::Entry::kLoad);
  if (world_.start.survivors && epoch_ == 0) return services_->survivor().rejoin();
  const bool first = epoch_ == world_.start.first_epoch;
  if (world_.start.restored_slot < 0) {
    trainer_.state().drop_kept_rows(world_.settings.run.seed_init);
    if (world_.settings.init && trainer_.initial() == nullptr)
      fail_run(
          fmt::format("{}: none of its checkpoints is valid, and the weights of [init] were not read again; "
                      "start a new attempt without --resume",
                      world_.record.folder.path));
    if (rank_ == 0 && first && world_.request.resume && world_.record.recovery_log)
      world_.record.recovery_log->resumed(0, 0, true, services_->actions().account());
    if (trainer_.initial() == nullptr || !trainer_.initial()->is_fork()) return services_->phases().begin();
    take_state(trainer_.initial()->checkpoint(), Continued::kFork);
    trainer_.initial()->close();
    return services_->phases().begin();
  }
  const CheckpointPlaces& places = *world_.record.places;
  const int place = world_.start.restored_place;
  CheckpointReader reader = places.at(place).open(world_.start.restored_slot);
  services_->actions().add_decoders(reader);
  counters_.wall_s = world_.start.restored_wall_s;
  take_state(reader, Continued::kResume);
  if (const std::string why = services_->canary().contradiction(reader); !why.empty())
    return services_->actions().fall_back(reader.step(), why);
  services_->saves().set_newest(counters_.slot, place);
  if (places.count() > 0) {
    with_.host.log(LogLevel::kInfo, fmt::format("continues from the checkpoint of slot {} in {}",
                                                counters_.slot, places.at(place).folder()));
  }
  services_->phases().begin();
  if (services_->emulated() != nullptr && first)
    services_->emulated()->start_at(slots_.progress().first_slot);
  if (first) services_->actions().account_resumed(reader);
  if (world_.record.recorded_costs) {
    for (const auto& worker : trainer_.workers()) worker->cost().set_costs(*world_.record.recorded_costs);
  }
}

void Rank::take_state(CheckpointReader& reader, Continued continued) {
  const KeptCount rows =
      trainer_.state().restore(reader, trainer_.shape(), folder_number(world_.record.folder.path), continued);
  if (rows.kept > 0) {
    with_.host.log(LogLevel::kInfo,
                   fmt::format("{} rows of tables are as the process before left them, and {} come from the "
                               "checkpoint of slot {}",
                               rows.kept, rows.lost, reader.step()));
  }
  counters_.slot = reader.step();
  const auto trainers = static_cast<int>(world_.settings.parallel.trainers());
  LineCounts& lines = counters_.lines;
  if (reader.world_size() != trainers)
    std::tie(lines.loss_sum, lines.loss_count) = saved_losses(reader, rank_, trainers);
  lines_.take();
  slots_.progress().begin_at(counters_.slot);
}

KeptPlaces Rank::kept() const {
  KeptPlaces kept{parts_.recovery->keep(), {}};
  auto* const offered = parts_.recovery.offered<SavePlaces>();
  if (offered == nullptr) return kept;
  const std::span<const SavePlace> places = parts_.recovery.guarded(*offered)->places();
  for (const SavePlace& place : places) {
    if (place.name.empty() || place.folder.empty() || place.keep < 2) {
      fail_plugin(fmt::format(
          "recovery '{}' keeps {} checkpoints in place '{}', folder '{}'; a place has a name and a "
          "folder, and keeps at least 2",
          parts_.recovery.id(), place.keep, place.name, place.folder));
    }
    kept.beside.push_back(
        {std::string(place.name), std::filesystem::absolute(place.folder).string(), place.keep});
  }
  if (!kept.beside.empty() && kept.keep == 0) {
    fail_plugin(
        fmt::format("recovery '{}' keeps checkpoints in place '{}' and none in the run's folder, from "
                    "which a run that is stopped is resumed; keep() must be at least 2",
                    parts_.recovery.id(), kept.beside[0].name));
  }
  return kept;
}

Manifest Rank::describe() const {
  const config::RunSettings& run = world_.settings.run;
  const InitialState* const initial = trainer_.initial();
  const bool is_fork = initial != nullptr && initial->is_fork();
  Manifest manifest = begin_manifest(
      world_.request.command_line,
      is_fork ? initial->loaded().step : std::max<std::int64_t>(world_.start.restored_slot, 0));
  manifest.cpu_features = parts_.device->features();
  manifest.kernels = parts_.device->kernel_choice();
  manifest.device_choice = world_.record.device_choice;
  manifest.ranks = static_cast<int>(world_.settings.parallel.world());
  manifest.threads = world_.threads_per_rank();
  if (world_.record.recorded_costs) {
    const PieceSeconds& costs = *world_.record.recorded_costs;
    manifest.calibration = {{"forward_seconds", costs.forward},
                            {"backward_seconds", costs.backward},
                            {"optimizer_seconds", costs.update},
                            {"mix_seconds", costs.mix}};
  }
  manifest.seed = run.seed;
  manifest.seed_init = run.seed_init;
  manifest.seed_order = run.seed_order;
  manifest.seed_rounding = run.seed_rounding;
  manifest.config_sha256 = plugin::file_sha256(world_.record.folder.path + "/config.resolved.toml");
  manifest.data = trainer_.data_sources();
  manifest.attributes = parts_.dataset->info().attributes;
  manifest.init = initial == nullptr ? world_.record.recorded_init : initial->loaded();
  return manifest;
}

bool Rank::run() {
  open_folder();
  // The policy's answer to the death of other ranks, or a checkpoint that is not believed.
  if (services_->actions().rolls_back()) return true;
  services_->survivor().begin();
  for (Service* service : services_->all()) service->start();
  RunInfo info;
  info.name = world_.settings.run.name.value_or("");
  info.folder = world_.record.folder.path;
  info.first_slot = slots_.progress().first_slot;
  info.steps = world_.settings.run.steps;
  info.ranks = static_cast<int>(world_.settings.parallel.trainers());
  info.rank = rank_;
  for (const ParameterInfo& p : trainer_.weights().live().parameters()) {
    if (p.spec.trainable && p.spec.role != Role::kBuffer) info.parameters += p.spec.shape.elements();
  }
  info.terminal = world_.request.terminal;
  info.quiet = world_.request.quiet;
  lines_.start_times();
  trainer_.observers().start(info);
  trainer_.observers().tables(trainer_.row_tables());
  if (WallTimeBreakdown* mine = wall_time()) mine->enter(WallTimeBreakdown::Entry::kWork);
  try {
    try {
      train(info);
      if (services_->actions().rolls_back()) {
        leave();
      } else {
        finish();
      }
    } catch (...) {
      rethrow_noted_call();  // an exception of any type
    }
  } catch (const std::exception& error) {
    if (stands_still_) {
      with_.gate.take_over();
      with_.gate.resume();
    }
    if (rank_ == 0) record_progress();
    trainer_.observers().finish("failed", error.what());
    throw;
  }
  return services_->actions().rolls_back();
}

/// All slots. Who hears phases hears them to here, whatever happens.
void Rank::train(const RunInfo& info) {
  struct End {
    ~End() {
      account.end();
      if (power != nullptr) power->end();
    }
    TimeAccount& account;
    RunPower* power;
  };
  const End end{with_.account, power_.get()};
  if (power_ != nullptr) power_->begin(with_.account, info.folder, info.first_slot);
  if (trainer_.observers().wants_phases()) with_.account.listen(trainer_.observers());
  if (trainer_.requests() != nullptr) trainer_.requests()->start(trainer_.weights(), with_.layer_watch);
  if (trainer_.workers().size() == 1) {
    loop(*trainer_.workers()[0]);
  } else {
    run_workers();
  }
  services_->prefetch().end();
  if (trainer_.requests() != nullptr) trainer_.requests()->end();
}

void Rank::loop(Worker& worker) {
  while (const auto ticket = slots_.claim(*this)) {
    const SlotQueue::Inside in_slot(slots_);
    const InsideGate inside(with_.gate);
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
  const int slots = trainer_.workers()[0]->cost().calibration_slots();
  return slots > 0 && slot >= slots_.progress().first_slot + slots;
}

void Rank::calibrate() {
  ComputeCost& cost = trainer_.workers()[0]->cost();
  cost.calibrate(world_.links.end_hub->exchange(rank_, cost.measured()));
  if (rank_ != 0) return;
  const PieceSeconds& seconds = cost.costs();
  world_.record.manifest.calibration = {{"forward_seconds", seconds.forward},
                                        {"backward_seconds", seconds.backward},
                                        {"optimizer_seconds", seconds.update},
                                        {"mix_seconds", seconds.mix}};
  write_manifest(*world_.files, world_.record.folder.path, world_.record.manifest);
}

void Rank::run_workers() {
  std::vector<int> participants;
  for (std::size_t w = 1; w < trainer_.workers().size(); ++w) {
    participants.push_back(
        world_.clock->announce(trainer_.replica(), static_cast<int>(w), fmt::format("worker {}", w)));
  }
  const int threads = parallel_threads();
  std::vector<std::thread> threads_of_workers;
  for (std::size_t w = 1; w < trainer_.workers().size(); ++w) {
    threads_of_workers.emplace_back([this, w, threads, id = participants[w - 1]] {
      world_.clock->enter(id);
      set_parallel_threads(threads);
      try {
        try {
          loop(*trainer_.workers()[w]);
        } catch (...) {
          rethrow_noted_call();
        }
      } catch (const CancelledError&) {
      } catch (const Error& error) {
        world_.links.control->fail(rank_, error.exit_status(), error.what());
      } catch (const std::exception& error) {
        world_.links.control->fail(rank_, 1, error.what());
      }
      slots_.end_worker();
      world_.clock->leave();
    });
  }
  std::exception_ptr failure;
  try {
    loop(*trainer_.workers()[0]);
  } catch (...) {
    // The other workers must hear of it now, or joining them would wait for their deadline.
    try {
      rethrow_noted_call();
    } catch (const Error& error) {
      world_.links.control->fail(rank_, error.exit_status(), error.what());
      failure = std::current_exception();
    } catch (const std::exception& error) {
      world_.links.control->fail(rank_, 1, error.what());
      failure = std::current_exception();
    }
  }
  slots_.await_ended(threads_of_workers.size());
  for (std::thread& thread : threads_of_workers) thread.join();
  if (failure) std::rethrow_exception(failure);
  if (world_.links.control->failed()) throw CancelledError(world_.links.control->failure());
}

// A plan is pure, so the position can move before the slot runs.
SlotQueue::Ticket Rank::take(std::int64_t slot) {
  for (Service* service : services_->all()) service->before_slot(slot);
  SlotStart start{slot};
  parts_.recovery->before_slot(start);
  const SlotQueue::Ticket ticket{slot, counters_.position, start.rate_scale};
  const SlotPlan plan = parts_.sync->plan({slot, trainer_.replica(), 0});
  if (plan.kind == SlotKind::kGrad || plan.consumes_data) counters_.position += trainer_.slot_samples();
  with_.host.set_slot(slot);
  return ticket;
}

/// Whether the bytes or seconds, as rank 0 counts them, have reached their budget.
bool Rank::budget_spent() const {
  const config::RunSettings& run = world_.settings.run;
  if (world_.request.replay_to >= 0) return false;
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
  for (Service* service : services_->all()) service->ask(due);
  due.asked = world_.links.control->begin_slot(rank_, slot);
  due.interrupted = (due.asked & kControlInterrupt) != 0;
  if (due.interrupted) world_.note_interrupt();
  const bool budget = (run.max_samples && counters_.samples >= *run.max_samples) ||
                      (run.max_tokens && counters_.tokens >= *run.max_tokens);
  due.stop = slot >= run.steps || budget || (due.asked & kControlStop) != 0 || replayed(slot);
  due.evaluate_all = (due.asked & kControlEvaluate) != 0 || (due.stop && due.first_time);
  if (due.interrupted) due.evaluate_all = run.evaluate_on_stop && due.first_time;
  due.evaluate = due.evaluate_all;
  // A run that was stopped or killed between a save and an evaluation makes up for it.
  if (!due.interrupted && (due.first_time || counters_.lines.evaluated < slot))
    due.evaluate |=
        std::ranges::any_of(trainer_.evaluators(), [&](const auto& e) { return e->data().due(slot); });
  if (run.evaluate_first && slot == 0 && !due.interrupted && counters_.lines.evaluated < 0)
    due.evaluate = due.evaluate_all = true;
  for (Service* service : services_->all()) service->plan(due);
  if (replayed(slot)) due.evaluate = due.evaluate_all = false;
  due.keep_nothing |= replayed(slot);
  return due;
}

/// An evaluation that a request to stop ends leaves no numbers, and the run ends here. All ranks agree.
void Rank::evaluate(Boundary& due) {
  world_.phase.enter("evaluate");
  const PhaseScope part(&with_.account, Phase::kEvaluate);
  const SpanScope span(&with_.spans, "evaluate", "evaluate");
  const bool alone = world_.settings.parallel.trainers() == 1;
  BreakAgreement agreement(alone ? nullptr : world_.links.training_hub.get(), rank_,
                           [&] { return !due.interrupted && world_.survival.stop.asked(); });
  // All of them, or none: what is made up for after a stop is the whole of it.
  std::vector<std::vector<EvaluationValue>> all(trainer_.evaluators().size());
  bool ended = false;
  for (std::size_t i = 0; i < all.size() && !ended; ++i) {
    Evaluator& evaluator = *trainer_.evaluators()[i];
    if (!due.evaluate_all && !evaluator.data().due(due.slot)) continue;
    if (i > 0 && agreement.breaks()) {
      ended = true;
      continue;
    }
    auto values = evaluator.run(trainer_.evaluated(), due.slot, [&] { return agreement.breaks(); });
    ended = !values;
    if (values) all[i] = std::move(*values);
  }
  if (!ended) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const EvaluatedData& data = trainer_.evaluators()[i]->data();
      for (const EvaluationValue& value : all[i]) {
        lines_.evaluated(due.slot, data.named() ? data.set : "", value.metric, value.value);
        if (!data.named()) parts_.recovery->on_evaluation(due.slot, value.metric, value.value);
      }
    }
    if (rank_ == 0) world_.record.metrics->flush();
    counters_.lines.evaluated = due.slot;
    return;
  }
  with_.host.log(LogLevel::kInfo,
                 fmt::format("the evaluation of slot {} was ended: the run is asked to stop", due.slot));
  world_.note_interrupt();
  due.stop |= !due.fails;
}

void Rank::act(Boundary& due) {
  const HeldPause pause(with_.gate);
  services_->prefetch().hold();
  if (trainer_.requests() != nullptr) {
    trainer_.requests()->settle();
    report_accesses();
  }
  parts_.sync->quiesce();  // transfers in flight end unapplied
  if (due.evaluate && !due.interrupted) evaluate(due);
  for (Service* service : services_->all()) service->at_boundary(due);
  // A request to stop waits for the save first: the evaluation can be made up for.
  if (due.evaluate && due.interrupted) evaluate(due);
  // The hashes of the run are those of what was evaluated and saved last, so actors do not go on in between.
  if (due.stop) {
    with_.gate.pause();
    stands_still_ = true;
  } else if (trainer_.requests() != nullptr) {
    trainer_.requests()->wait_for_all();
  }
}

void Rank::report(const RowGradient& rows) {
  parts_.recovery->on_accesses(rows.parameter, rows.ids, rows.counts);
  for (Service* service : services_->all()) service->accessed(rows);
  trainer_.observers().accesses(rows);
}

void Rank::report_accesses() {
  if (trainer_.requests() != nullptr)
    trainer_.requests()->server().take_accesses([&](const RowGradient& rows) { report(rows); });
}

void Rank::finish_slot(const SlotQueue::Ticket& ticket, const SlotResult& result) {
  const auto lock = slots_.lock();
  ++counters_.slot;
  if (WallTimeBreakdown* mine = wall_time()) mine->slots_done(counters_.slot);
  const std::int64_t samples = result.micros * parts_.dataset->batch() * trainer_.weights().replicas();
  counters_.samples += samples;
  counters_.tokens += samples * parts_.dataset->info().tokens_per_sample;
  if (result.kind == SlotKind::kGrad && !result.applied) ++counters_.lines.skipped_updates;
  counters_.lines.loss_sum += result.loss_sum;
  counters_.lines.loss_count += result.loss_count;
  for (const RowGradient& rows : result.rows) report(rows);
  report_accesses();
  // Replicas that update alone synchronise elsewhere, and their strategy calls this there. From here on an
  // interruption finds a slot that is done.
  if (result.applied && trainer_.state().members().shared) trainer_.weights().sync_buffers();
  for (Service* service : services_->all()) service->after_slot(ticket.slot, result);
  SlotRecord record;
  record.slot = ticket.slot;
  record.applied = result.applied;
  record.loss = result.loss_count > 0 ? result.loss_sum / result.loss_count : 0;
  record.lr = result.lr;
  record.gradient_norm = result.gradient_norm;
  record.seconds = result.seconds;
  record.samples = counters_.samples;
  record.tokens = counters_.tokens;
  trainer_.observers().slot(record);
  if (rank_ == 0) world_.record.metrics->tick();
}

void Rank::record_progress() {
  RunResult& result = world_.record.result;
  result.steps = counters_.slot;
  result.samples = counters_.samples;
  result.tokens = counters_.tokens;
  result.wall_s = lines_.wall_s();
  // The world adds what the rank's threads waited.
  result.stall_s = lines_.stall_s() - lines_.actors_idle_s();
}

/// In place of finish(): nothing of this rank is the run's result.
void Rank::leave() {
  if (WallTimeBreakdown* mine = wall_time()) mine->enter(WallTimeBreakdown::Entry::kRestart);
  if (rank_ == 0) record_progress();
  trainer_.observers().finish("rolled back", "");
}

void Rank::finish() {
  {
    const PhaseScope part(&with_.account, Phase::kSave);
    const WallTimeScope entry(wall_time(), WallTimeBreakdown::Entry::kSave);
    services_->saves().await();
  }
  // Hashes: every rank's digests to rank 0; weights of the evaluation set of replica 0.
  if (stands_still_) with_.gate.take_over();
  std::optional<HeldPause> pause(with_.gate);
  if (std::exchange(stands_still_, false)) with_.gate.resume();
  parts_.sync->quiesce();
  const auto times = world_.links.end_hub->exchange(
      rank_, rank_time_text(lines_.time_so_far(trainer_.requests() != nullptr ? &trainer_.requests()->server()
                                                                              : nullptr)));
  const auto recorded = world_.links.end_hub->exchange(rank_, with_.distributions.text());
  const auto all = world_.links.end_hub->exchange(rank_, trainer_.state().digests());
  services_->repetition().record();
  SetLayout layout{trainer_.groups().all(), world_.settings.parallel.grid, nullptr, trainer_.replica()};
  if (trainer_.rows().sharded()) layout.replicas = trainer_.weights().group(Purpose::kState);
  const std::string weights = logical_digests(trainer_.evaluated(), *parts_.device, layout);
  const auto all_weights = world_.links.end_hub->exchange(rank_, weights);
  pause.reset();
  if (world_.stop_reason() == StopReason::kNone) {
    for (KeptRows* const rows : trainer_.state().kept_rows()) rows->end();
  }
  const std::string_view status = world_.stop_reason() == StopReason::kSignal ? "interrupted" : "completed";
  if (rank_ != 0) return trainer_.observers().finish(status, services_->saves().error());
  StateHasher state_hash;
  for (const std::string& digests : all) state_hash.merge(digests);
  StateHasher weights_hash;
  for (const std::string& digests : all_weights) {
    if (!digests.empty()) weights_hash.merge(digests);
  }

  if (auto* const gathered = parts_.precision.offered<PrecisionMetrics>()) {
    parts_.precision.guarded(*gathered)->metrics([this](std::string_view name, double value) {
      lines_.add(counters_.slot, Split::kTrain, name, value);
    });
  }
  if (power_ != nullptr) {
    power_->metrics([this](std::string_view name, double value) {
      lines_.add(counters_.slot, Split::kTrain, name, value);
    });
  }
  services_->actions().end(status);
  record_progress();
  RunResult& result = world_.record.result;
  result.state_hash = state_hash.hex();
  result.weights_hash = weights_hash.hex();
  if (world_.links.transport) {
    for (const std::string& text : times) result.communication.push_back(read_rank_time(text));
    if (const std::string slow = slow_rank_text(result.communication); !slow.empty())
      with_.host.log(LogLevel::kWarning, slow);
  }
  for (const std::string& text : recorded) merge_distributions(result.distributions, text);
  for (const auto& worker : trainer_.workers()) {
    for (const auto& [format, count] : worker->operands()) result.quantized_operands[format] += count;
  }
  if (!services_->saves().error().empty()) {
    result.error = services_->saves().error() +
                   "; training went on, but the newest checkpoint is older than the end. Make room, then "
                   "continue with --resume";
    result.exit_status = 1;
  }
  trainer_.observers().finish(status, result.error);
}

// The life of a server rank.

namespace {

/// Longest silence of a trainer: longer than evaluations, saves and slots of any length.
constexpr double kTrainerSilenceSeconds = 24.0 * 3600;

class Node final : public ServerNode {
 public:
  Node(World& world, int rank, RankHost& host) : world_(world), rank_(rank), host_(host) {}
  int server() const override { return rank_ - trainers(); }
  int servers() const override { return static_cast<int>(world_.settings.parallel.servers); }
  int trainers() const override { return static_cast<int>(world_.settings.parallel.trainers()); }
  int parts() const override { return static_cast<int>(world_.settings.parallel.ranks_per_replica()); }
  Host& host() override { return host_; }
  std::unique_ptr<Communicator> open(int trainer, std::string_view name, Purpose purpose) override {
    if (trainer < 0 || trainer >= trainers()) {
      fail_plugin(fmt::format("a server opens '{}' to trainer {}; there are {}", name, trainer, trainers()));
    }
    const int members[] = {trainer, rank_};
    return world_.links.transport->open(rank_,
                                        {members, pair_name(name), purpose, 0, kTrainerSilenceSeconds});
  }

 private:
  World& world_;
  int rank_;
  RankHost& host_;
};

}  // namespace

void run_server(World& world, int rank) {
  set_parallel_threads(1);
  PauseGate gate(*world.clock, world.settings.run.deadline);
  HostSpec spec;
  spec.rank = rank;
  spec.world_size = static_cast<int>(world.settings.parallel.world());
  // After all replicas in the order of ties.
  spec.replica = static_cast<int>(world.settings.parallel.ranks + rank - world.settings.parallel.trainers());
  spec.deadline_s = world.settings.run.deadline;
  spec.clock = world.clock.get();
  spec.control = world.links.control.get();
  RankHost host(spec, gate);
  const config::CheckedComponent* const named = world.checked.component("sync");
  if (named == nullptr) refuse_servers(world, "a run without a [sync] table", "");
  const config::CheckedComponent chosen = named->copy();
  world.registry.create_inner(*chosen.options, host);
  const std::unique_ptr<ResolvedOptions, InnerEnd> inner(chosen.options.get());
  const Component<Sync> sync = world.registry.create<Sync>(chosen.type, *chosen.options, host);
  const ComponentRef& ref = sync.handle().ref();
  const GuardContext names{ref.plugin, ref.name, rank};
  auto* serving = guard(names, [&] { return static_cast<SyncServer*>(sync->query(SyncServer::kId)); });
  const std::string who = fmt::format("sync strategy '{}'", chosen.type);
  if (serving == nullptr) refuse_servers(world, who, "");
  const std::string_view declines = guard(names, [&] { return serving->declines(); });
  if (!declines.empty()) refuse_servers(world, who, declines);
  Node node(world, rank, host);
  guard({ref.plugin, ref.name, rank, -1, nullptr, 0}, [&] { serving->serve(node); });
}

}  // namespace tenon::train
