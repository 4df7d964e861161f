// The life of a run: validate, open the folder, start the ranks as threads, join them, write down how it
// ended.
#include "train/world.hpp"

#include <tenon/clocks.hpp>
#include "graph/memory_budget.hpp"
#include "observe/plugin_lock.hpp"
#include "observe/process_facts.hpp"
#include "observe/summary.hpp"
#include "train/rank.hpp"
#include "train/server_rank.hpp"
#include "train/time_account.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>
#include <thread>

namespace tenon::train {
namespace {

constexpr double kMetricsIntervalSeconds = 1.0;
/// The control plane says at once why a rank was cut off, unless it is gone itself.
constexpr std::chrono::seconds kWhyKnownWithin{10};
/// Whoever started the ranks ends those that do not answer before it says where the others go on.
constexpr double kGoOnSeconds = 600;
/// What a loop holds beside the plan: stacks, logs, generated kernels, buffers of files. Measured on small
/// runs.
constexpr double kLoopMegabytes = 1.5;

/// Ranks that nobody started are threads of this process.
void require_room_for_ranks(std::int64_t ranks) {
  const auto needed = graph::saturating_product(ranks, static_cast<std::int64_t>(kLoopMegabytes * (1 << 20)));
  const std::int64_t usable = usable_memory_bytes();
  if (usable <= 0 || needed <= usable) return;
  fail_config(fmt::format(
      "[parallel]: {} ranks (ranks x grid, and servers) as threads of this process take at least {}, "
      "and this process may use {} of this machine; lower parallel.ranks, grid or servers, or start the "
      "ranks as processes on more machines (tenon launch)",
      ranks, graph::memory_text(needed), graph::memory_text(usable)));
}

/// A broken plugin stops only the runs that need it; the others say that they went on without.
void note_left_out(const Registry& registry, std::vector<std::string>& notes) {
  for (const PluginStatus& plugin : registry.plugins()) {
    if (plugin.state == PluginStatus::State::kFailed)
      notes.push_back("a plugin was left out: " + plugin.reason);
  }
}

std::optional<PieceSeconds> calibrated_costs(const Manifest& manifest) {
  if (manifest.calibration.empty()) return std::nullopt;
  const auto seconds = [&](std::string_view name) {
    for (const auto& [key, value] : manifest.calibration) {
      if (key == name) return value;
    }
    return 0.0;
  };
  return PieceSeconds{seconds("forward_seconds"), seconds("backward_seconds"), seconds("optimizer_seconds"),
                      seconds("mix_seconds")};
}

/// Shares of their bandwidth that slow links have, by rank.
std::vector<double> link_speeds(const config::CoreSettings& settings) {
  std::vector<double> speeds(static_cast<std::size_t>(settings.parallel.world()), 1.0);
  for (const config::StragglerSettings& straggler : settings.transport.stragglers) {
    if (straggler.kind != config::StragglerSettings::Kind::kLink) continue;
    for (const std::int64_t rank : straggler.ranks)
      speeds[static_cast<std::size_t>(rank)] *= straggler.factor;
  }
  return speeds;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

World::World(const Config& run_config, Registry& plugin_registry, const TrainRequest& train_request,
             Survival& of_process)
    : config(run_config),
      registry(plugin_registry),
      request(train_request),
      survival(of_process),
      place(train_request.place),
      checked(config::check_run(config, registry, {})),
      settings(checked.core),
      files(make_posix_files()),
      clock(settings.transport.simulated_clock ? make_simulated_clock(settings.run.deadline)
                                               : make_wall_clock()),
      saver_clock(make_wall_clock()),
      transport_gate(*clock, settings.run.deadline) {
  const auto ranks = static_cast<int>(settings.parallel.world());
  const config::CostSettings& costs = settings.transport.costs;
  if (settings.transport.simulated_clock && !costs.compute_seconds && !costs.calibrate) {
    fail_config(
        "transport.clock: the simulated clock needs compute_seconds, the cost of one micro-batch, or "
        "calibrate = "
        "true");
  }
  if (ranks > 1) {
    config::CheckedComponent* chosen = checked.component("transport");
    if (chosen == nullptr)
      fail_config("a run of several ranks needs a [transport] table, e.g. type = \"thread\"");
    transport_host = std::make_unique<RankHost>(
        HostSpec{-1, ranks, 0, settings.run.deadline, clock.get(), nullptr, nullptr}, transport_gate);
    registry.create_inner(*chosen->options, *transport_host);
    transport = registry.create<Transport>(chosen->type, *chosen->options, *transport_host);
  }
  find_place();
  if (threads_only()) require_room_for_ranks(settings.parallel.world());
  open_control();
  watch_passes();
  if (!transport) return;
  WorldSpec spec;
  spec.ranks = ranks;
  spec.deadline_s = settings.run.deadline;
  spec.seed = settings.run.seed;
  spec.clock = clock.get();
  if (settings.transport.link) {
    const config::LinkSettings& link = *settings.transport.link;
    spec.link.bandwidth_bits_per_s = std::isfinite(link.bandwidth) ? link.bandwidth * 8 : 0;
    spec.link.latency_s = link.latency;
    spec.link.jitter_s = link.jitter;
  }
  spec.link_speed = link_speeds(settings);
  connect(spec);
}

World::~World() {
  survival.stop.attach({});
}

std::vector<LockedPlugin> World::loaded_plugins() const {
  std::vector<LockedPlugin> locked;
  for (const PluginStatus& plugin : registry.plugins()) {
    if (plugin.state != PluginStatus::State::kLoaded) continue;
    const bool built_in = plugin.file == "built in";
    locked.push_back({plugin.id, plugin.version, built_in ? "" : plugin.file, plugin.sha256, plugin.abi});
  }
  return locked;
}

int World::ranks_here() const {
  return threads_only() ? static_cast<int>(settings.parallel.trainers()) : std::max(1, place.local_ranks);
}

int World::threads_per_rank() const {
  if (settings.device.threads > 0) return static_cast<int>(settings.device.threads);
  return std::max(1, usable_cores() / ranks_here());
}

/// Threads that were asked for. Ranks that outnumber the cores are somebody's experiment.
void World::note_crowding() {
  const auto asked = static_cast<int>(settings.device.threads);
  const int cores = usable_cores();
  if (asked < 2 || asked * ranks_here() <= cores) return;
  notes.push_back(
      fmt::format("device.threads = {} for each of {} rank(s) on this machine, where this process may use {} "
                  "core(s): threads will "
                  "wait for each other; device.threads = 0 shares the cores",
                  asked, ranks_here(), cores));
}

int World::replicas_here() const {
  const auto grid = static_cast<int>(settings.parallel.ranks_per_replica());
  return std::clamp((ranks_here() + grid - 1) / grid, 1, static_cast<int>(settings.parallel.ranks));
}

void World::ask_to_stop(StopReason reason, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_ == reason || stop_ == StopReason::kSignal) return;
    stop_ = reason;
    stop_why_ = why;
  }
  try {
    if (reason != StopReason::kSignal) {
      control->request(kControlStop, why);
    } else if (control_client != nullptr) {
      control_client->ask(kControlStop | kControlInterrupt, why);
    } else {
      control->request(kControlStop | kControlInterrupt, why);
    }
  } catch (const Error&) {
    // A run that has failed ends anyway; whoever takes signals has nobody to tell.
    if (reason != StopReason::kSignal) throw;
  }
}

void World::note_interrupt() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = StopReason::kSignal;
  }
  survival.stop.heard();
}

StopReason World::stop_reason() const {
  const std::lock_guard lock(mutex_);
  return stop_;
}

std::uint64_t World::bytes_sent() const {
  std::uint64_t sum = 0;
  if (!transport) return sum;
  for (int purpose = 0; purpose < kPurposes; ++purpose) {
    sum += transport->counts(std::max(0, place.rank), static_cast<Purpose>(purpose)).bytes_sent;
  }
  return sum;
}

void World::open(int keep, bool mixed, const std::function<void(const CheckpointReader&)>& check) {
  const std::string base =
      request.run_dir.empty() ? "runs/" + settings.run.name.value_or("run") : request.run_dir;
  try {
    open_folder(base, keep, mixed, check);
  } catch (const FileError& error) {
    fail_run(
        fmt::format("the run's folder '{}' cannot be used: {}. Nothing was trained; make room, or choose "
                    "another folder with "
                    "--run-dir",
                    base, error.what()));
  }
}

void World::open_folder(const std::string& base, int keep, bool mixed,
                        const std::function<void(const CheckpointReader&)>& check) {
  folder = request.resume ? open_newest_attempt(*files, base) : create_run_folder(*files, base);
  lock = std::make_unique<AttemptLock>(folder.path);
  result.folder = folder.path;

  StoreOptions options;
  options.keep = std::max(2, keep);
  options.hook = [this](const char* name) { phase.enter(name); };
  store = std::make_unique<CheckpointStore>(*files, folder.path + "/checkpoints", options);
  if (request.resume) find_checkpoint(mixed, check);
  write_text_atomically(*files, folder.path + "/config.resolved.toml",
                        to_toml(checked.resolved.root(), true));
  write_plugin_lock(*files, folder.path, loaded_plugins());
  note_left_out(registry, notes);
  note_crowding();
  open_metrics();
  if (checked.component("recovery") != nullptr || settings.emulate) {
    std::optional<ClusterCosts> costs;
    double hours_per_slot = 0;
    if (settings.emulate) {
      costs = settings.emulate->costs;
      hours_per_slot = settings.emulate->hours / static_cast<double>(settings.run.steps);
    }
    recovery_log = std::make_unique<RecoveryLog>(*files, folder.path, costs, hours_per_slot);
  }
}

void World::open_metrics() {
  metrics = std::make_unique<MetricsWriter>(*files, folder.path + "/metrics.jsonl", kMetricsIntervalSeconds);
}

void World::roll_back(const RollBack& target) {
  const std::lock_guard lock(mutex_);
  if (epoch == target.epoch) return;  // another rank of this process was first
  epoch = target.epoch;
  restored_slot = target.slot;
  faults_from = target.faults_from;
  timeline = target.timeline;
  restored_wall_s = target.wall_s;
  next_failure = target.next_failure;
  if (!target.asked) return;
  ++roll_backs;
  rolled_back_to = std::max<std::int64_t>(0, target.slot);
}

void World::find_checkpoint(bool mixed, const std::function<void(const CheckpointReader&)>& check) {
  const RestorePoint point = store->recover(!mixed);
  for (const RejectedGeneration& bad : point.rejected) {
    notes.push_back(fmt::format("checkpoint of slot {} is damaged and was put aside as {}: {}", bad.step,
                                bad.path, bad.reason));
  }
  restored_slot = point.step;
  if (restored_slot >= 0) {
    const CheckpointReader reader = store->open(restored_slot);
    check(reader);
    // What was saved later than this is of another continuation.
    timeline = reader.timeline() + (store->generations().back() > restored_slot ? 1 : 0);
  }
  if (restored_slot < 0) notes.push_back("no usable checkpoint: the attempt starts again from slot 0");
  drop_metrics_after(*files, folder.path + "/metrics.jsonl",
                     survivors ? survivors->goes_on_from() : std::max<std::int64_t>(restored_slot, 0));
  // A run that died between its last checkpoint and its summary has nothing left to measure.
  if (files->exists(folder.path + "/metrics.jsonl")) {
    for (const MetricLine& line : read_metrics(*files, folder.path + "/metrics.jsonl")) {
      result.metrics[fmt::format("{}/{}", line.split, line.name)] = line.value;
      restored_wall_s = std::max(restored_wall_s, line.wall_s);
      if (line.split == split_name(Split::kVal)) evaluated_slot = std::max(evaluated_slot, line.step);
    }
  }
  try {
    Manifest earlier = read_manifest(*files, folder.path);
    earlier_segments = std::move(earlier.segments);
    recorded_kernels = std::move(earlier.kernels);
    recorded_costs = calibrated_costs(earlier);
  } catch (const Error& error) {
    notes.push_back(fmt::format("the earlier manifest cannot be read and is begun anew: {}", error.what()));
  }
}

bool World::owes_evaluation() const {
  const config::RunSettings& run = settings.run;
  const bool due = restored_slot >= run.steps || (run.eval_every > 0 && restored_slot % run.eval_every == 0);
  return request.resume && !survivors && restored_slot > 0 && evaluated_slot < restored_slot && due;
}

// Lines of slots that will be computed again go, as at a resume.
void World::reopen() {
  metrics.reset();
  drop_metrics_after(*files, folder.path + "/metrics.jsonl", std::max<std::int64_t>(restored_slot, 0));
  open_metrics();
}

void World::begin_manifest(Manifest begun) {
  manifest = std::move(begun);
  manifest.segments.insert(manifest.segments.begin(), earlier_segments.begin(), earlier_segments.end());
  write_manifest(*files, folder.path, manifest);
}

void World::run_ranks(const std::function<bool(int rank, Rank& self)>& body) {
  const auto ranks = static_cast<int>(settings.parallel.world());
  const int first = threads_only() ? 0 : place.rank;
  const int end = threads_only() ? ranks : place.rank + 1;
  std::vector<int> participants;
  for (int rank = first; rank < end; ++rank) {
    const int replica = rank / static_cast<int>(settings.parallel.ranks_per_replica());
    participants.push_back(clock->announce(replica, rank - ranks, fmt::format("rank {}", rank)));
  }
  std::vector<std::thread> threads;
  for (int rank = first; rank < end; ++rank) {
    const int id = participants[static_cast<std::size_t>(rank - first)];
    try {
      threads.emplace_back([this, rank, &body, id] { run_rank(rank, id, body); });
    } catch (const std::system_error& error) {
      // Those that run already wait for this one: they are called back.
      control->fail(
          rank, static_cast<int>(ErrorKind::kRun),
          fmt::format("the system gives this process no thread for rank {} of {}: {}; raise its limits "
                      "(ulimit -u, ulimit -v), or lower parallel.ranks",
                      rank, ranks, error.what()));
      for (int other = rank; other < end; ++other) {
        clock->enter(participants[static_cast<std::size_t>(other - first)]);
        clock->leave();
      }
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
}

void World::run_rank(int rank, int participant, const std::function<bool(int rank, Rank& self)>& body) {
  bool entered = false;
  ++running_;
  try {
    clock->enter(participant);
    entered = true;
    if (rank >= settings.parallel.trainers()) {
      run_server(*this, rank);
    } else {
      run_trainer(rank, body);
    }
  } catch (...) {
    cut_off_ = true;
    report_failure(rank);  // unless it was
  }
  if (entered) clock->leave();
  --running_;
}

// A rank that goes back to a checkpoint is built anew: that is how a run is resumed, too, so what a component
// keeps outside of its state is gone here as it would be there.
void World::run_trainer(int rank, const std::function<bool(int rank, Rank& self)>& body) {
  for (bool again = true; again;) {
    {
      Rank self(*this, rank);
      try {
        again = body(rank, self);
      } catch (...) {
        // Before this rank ends: its actors may wait for others, who have to hear of it.
        cut_off_ = true;
        report_failure(rank);
        if (outlives()) self.survivor().hold();
        throw;
      }
    }
    // Communicators of the new epoch end those of the old one, so nobody opens one before all are gone.
    if (again) end_hub->exchange(rank, "left");
  }
}

void World::report_failure(int rank) {
  try {
    rethrow_noted_call();
  } catch (const CancelledError&) {
    // The first failure is reported by the control plane.
  } catch (const DeadlineError& error) {
    await_late_pass();
    if (control_client == nullptr) return control->fail(rank, error.exit_status(), error.what());
    control_client->miss(rank, error.what());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDeviceLost) return control->fail(rank, error.exit_status(), error.what());
    device_lost_ = true;
    control->fail(rank, error.exit_status(), std::string(error.what()) + newest_checkpoint_text());
  } catch (const std::bad_alloc&) {
    control->fail(rank, 1, "out of memory; use a smaller model, batch or context");
  } catch (const std::exception& error) {
    control->fail(rank, 1, error.what());
  }
}

/// "; the newest checkpoint is that of slot 40"
std::string World::newest_checkpoint_text() const {
  std::vector<std::int64_t> whole;
  try {
    if (store != nullptr) whole = store->generations();
  } catch (const Error&) {
    // What is being reported matters more than that the folder cannot be read.
  }
  return whole.empty() ? "; there is no checkpoint yet"
                       : fmt::format("; the newest checkpoint is that of slot {}", whole.back());
}

int World::failure_status() const {
  return device_lost_ ? static_cast<int>(ErrorKind::kDeviceLost) : std::max(1, control->failure_status());
}

bool World::outlives() const {
  if (!place.survives || control_client == nullptr || device_lost_) return false;
  // Who is cut off by another rank may learn of it before the control plane says why.
  const auto until = std::chrono::steady_clock::now() + kWhyKnownWithin;
  while (cut_off_ && !control->failed() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return control_client->interrupted();
}

bool World::goes_on() {
  survival.next = control_client->hold(kGoOnSeconds);
  if (!survival.next) return false;
  if (metrics != nullptr) metrics->flush();
  end_segment("interrupted: " + control->failure());
  return true;
}

void World::end_segment(const std::string& reason) {
  if (manifest.segments.empty()) return;
  manifest.segments.back().end = utc_now();
  manifest.segments.back().exit_reason = reason;
  write_manifest(*files, folder.path, manifest);
}

void World::throw_failure() const {
  if (!control->failed()) return;
  std::string text = control->failure();
  const auto kind = static_cast<ErrorKind>(failure_status());
  // The ranks of one process read one configuration: which of them found the error first says nothing.
  if (kind == ErrorKind::kConfig && threads_only() && settings.parallel.world() > 1)
    text.erase(0, text.find(": ") + 2);
  throw Error(kind, text);
}

std::vector<std::string> World::build_only() {
  std::vector<std::string> facts;
  const double before = anonymous_rss_mb();
  std::atomic<std::int64_t> planned = 0;
  run_ranks([&](int rank, Rank& self) {
    planned += self.trainer().planned_bytes();
    if (rank == 0) facts = self.trainer().facts();
    end_hub->exchange(rank, "built");
    return false;
  });
  throw_failure();
  const double megabytes = static_cast<double>(planned) / (1024.0 * 1024.0);
  facts.push_back(
      fmt::format("predicted peak of the process: {:.1f} MiB beside file-backed pages, {:.1f} of it planned "
                  "for {} rank(s)",
                  megabytes + before + kLoopMegabytes, megabytes, settings.parallel.world()));
  return facts;
}

RunResult World::run() {
  survival.stop.attach([this](const std::string& name) { ask_to_stop(StopReason::kSignal, name); });
  if (control_client != nullptr) control_client->on_interrupt([this] { survival.stop.heard(); });
  run_ranks([this](int rank, Rank& self) {
    if (rank == std::max(0, place.rank)) survival.stop.set_keeps(self.keep() > 0, place.rank);
    // All ranks could be built: only now does the run appear on disk.
    end_hub->exchange(rank, "built");
    if (epoch == 0) {
      if (place.generation > 0 && request.resume) self.survivor().meet();
      if (rank == 0) {
        open(self.keep(), request.resume && self.continues_mixed(),
             [&](const CheckpointReader& reader) { self.trainer().check(reader); });
        if (owes_evaluation())
          control->request(kControlEvaluate, "of the slot at which the attempt was cut short");
      }
      share_opening(rank, self.keep());
    } else {
      if (rank == 0) reopen();
      end_hub->exchange(rank, "open");
    }
    return self.run();
  });
  survival.stop.attach({});
  if (outlives() && goes_on()) return result;
  // Before the attempt was open nothing was written into it.
  if (place.rank <= 0 ? metrics == nullptr : store == nullptr) throw_failure();
  finish();
  return result;
}

void World::finish() {
  const std::lock_guard lock(end_mutex_);
  finish_locked();
}

void World::finish_locked() {
  if (control->failed()) {
    result.status = "failed";
    result.error = control->failure();
    result.exit_status = failure_status();
  } else {
    result.status = stop_reason() == StopReason::kSignal ? "interrupted" : "completed";
  }
  result.rank = std::max(0, place.rank);
  if (result.wall_s == 0) result.wall_s = seconds_since(begun_);
  // The record of a run is that of rank 0.
  if (place.rank <= 0) write_results();
}

void World::write_results() {
  result.peak_rss_mb = peak_rss_mb();
  result.peak_anonymous_mb = peak_anonymous_rss_mb();
  result.bytes_sent = bytes_sent();
  result.hidden_comm_share = hidden_share(result.communication);
  if (transport) {
    for (int p = 0; p < kPurposes; ++p) {
      const auto purpose = static_cast<Purpose>(p);
      const LinkCounts counts = transport->counts(0, purpose);
      if (counts.bytes_sent > 0)
        result.bytes_by_purpose[std::string(purpose_name(purpose))] = counts.bytes_sent;
      result.stall_s += counts.blocked_seconds;
      std::uint64_t served = 0;
      for (auto rank = settings.parallel.trainers(); rank < settings.parallel.world(); ++rank)
        served += transport->counts(static_cast<int>(rank), purpose).bytes_sent;
      if (served > 0) result.bytes_by_purpose["servers." + std::string(purpose_name(purpose))] = served;
    }
  }
  result.bytes_by_purpose["control"] += control->bytes();
  try {
    metrics->flush();
    write_summary(*files, result);
    end_segment(result.error.empty() ? result.status : result.status + ": " + result.error);
  } catch (const std::exception& failure) {
    // Training is over and the caller still gets what came of it, with what the disk already refused before.
    result.error = fmt::format("{}{}the end of the run could not be recorded: {}", result.error,
                               result.error.empty() ? "" : "; ", failure.what());
    result.exit_status = std::max(1, result.exit_status);
  }
}

}  // namespace tenon::train
