// The life of a run: validate, open the folder, start the ranks as threads, join them, write down how it
// ended.
#include "run/world.hpp"

#include "base/elapsed.hpp"
#include "base/process_facts.hpp"
#include "graph/memory_budget.hpp"
#include "loop/time_account.hpp"
#include "plugin/process_end.hpp"
#include "record/run_files.hpp"
#include "run/rank.hpp"

#include <tenon/clock.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>

namespace tenon::train {

// The phase probe. One write(2) per line, so that a killed process leaves every phase that it entered.

PhaseProbe::PhaseProbe() {
  if (const char* log = std::getenv("TENON_PHASE_LOG")) {
    const char* rank = std::getenv("TENON_RANK");
    const std::string path = rank == nullptr ? log : std::string(log) + "." + rank;
    file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  }
  kill_.read(std::getenv("TENON_KILL_AT"));
  stop_.read(std::getenv("TENON_STOP_AT"));
}

void PhaseProbe::Moment::read(const char* at) {
  if (at == nullptr) return;
  std::string_view text = at;
  if (const auto who = text.find('@'); who != std::string_view::npos) {
    const char* rank = std::getenv("TENON_RANK");
    const char* generation = std::getenv("TENON_GENERATION");
    const bool replaced = generation != nullptr && std::string_view(generation) != "0";
    if (rank == nullptr || text.substr(who + 1) != rank || replaced) return;
    text = text.substr(0, who);
  }
  const auto colon = text.find(':');
  phase = text.substr(0, colon);
  long count = 1;
  if (colon != std::string_view::npos)
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), count);
  left = count;
}

void PhaseProbe::enter(std::string_view phase) {
  if (!active()) return;
  if (file_) {
    const std::string line = std::string(phase) + "\n";
    [[maybe_unused]] const auto written = ::write(file_.get(), line.data(), line.size());
  }
  if (kill_.reached(phase)) ::kill(::getpid(), SIGKILL);
  if (stop_.reached(phase)) ::kill(::getpid(), SIGTERM);
}

// The world.

namespace {

/// The control plane says at once why a rank was cut off, unless it is gone itself.
constexpr std::chrono::seconds kWhyKnownWithin{10};
/// The launcher ends ranks that do not answer before it says where the others go on.
constexpr double kGoOnSeconds = 600;
/// Memory of a loop beside the plan: stacks, logs, generated kernels, buffers of files. Measured on small
/// runs.
constexpr double kLoopMegabytes = 1.5;

/// Ranks without a launcher are threads of this process.
void require_room_for_ranks(std::int64_t ranks) {
  const auto needed = graph::saturating_product(ranks, static_cast<std::int64_t>(kLoopMegabytes * (1 << 20)));
  const std::int64_t usable = usable_memory_bytes();
  if (usable <= 0 || needed <= usable) return;
  fail_config(fmt::format(
      "[parallel]: {} ranks (ranks x grid, and servers) as threads of this process take at least {}, "
      "and this process may use {} of this machine; lower parallel.ranks, mesh or servers, or start the "
      "ranks as processes on more machines (tenon launch)",
      ranks, graph::memory_text(needed), graph::memory_text(usable)));
}

/// A broken plugin stops only the runs that need it; the others say that they went on without.
void note_left_out(const Registry& registry, std::vector<std::string>& notes) {
  for (const PluginStatus& plugin : registry.plugins()) {
    if (plugin.state == PluginStatus::State::kFailed)
      notes.push_back("a plugin was left out: " + plugin.reason);
    if (plugin.state == PluginStatus::State::kHidden) notes.push_back("plugin " + plugin.reason);
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
  std::vector<double> speeds(settings.parallel.world(), 1.0);
  for (const config::StragglerSettings& straggler : settings.transport.stragglers) {
    if (straggler.kind != config::StragglerSettings::Kind::kLink) continue;
    for (const std::int64_t rank : straggler.ranks) speeds[rank] *= straggler.factor;
  }
  return speeds;
}

/// "line 3: 'a' against 'b'", the first that differs.
std::string first_difference(std::string_view theirs, std::string_view ours) {
  for (int line = 1;; ++line) {
    const auto cut = [](std::string_view& text) {
      const auto end = text.find('\n');
      const std::string_view first = text.substr(0, end);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
      return first;
    };
    const std::string_view a = cut(theirs), b = cut(ours);
    if (a != b) return fmt::format("line {}: '{}' against '{}'", line, a, b);
    if (theirs.empty() && ours.empty()) return "only in their line endings";
  }
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
      links(settings, place, *clock, *saver_clock),
      record(*files) {
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
    links.transport_host = std::make_unique<RankHost>(
        HostSpec{-1, ranks, 0, settings.run.deadline, clock.get(), nullptr, nullptr}, links.transport_gate);
    registry.create_inner(*chosen->options, *links.transport_host);
    links.transport = std::make_unique<GuardedTransport>(
        registry.create<Transport>(chosen->type, *chosen->options, *links.transport_host),
        settings.run.deadline);
  }
  watch_passes();
  links.find_place();
  if (threads_only()) require_room_for_ranks(settings.parallel.world());
  links.open_control();
  has_control_ = true;
  if (!links.transport) return;
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

std::vector<LockedPlugin> World::plugins_of_run() {
  if (!request.resume) return loaded_plugins();
  std::vector<std::string> replaced;
  std::vector<LockedPlugin> plugins =
      continued_plugins(read_plugin_lock(*files, record.folder.path), loaded_plugins(),
                        std::max<std::int64_t>(start.restored_slot, 0), replaced);
  const std::string text = fmt::format("{}", fmt::join(replaced, "\n  "));
  if (!replaced.empty() && !request.accept_plugins) {
    fail_config(fmt::format(
        "{}: the run was trained by other plugins:\n  {}\nNothing was changed: put those files back, begin a "
        "new attempt without --resume, or go on with --accept-plugins, which is recorded",
        record.folder.path, text));
  }
  if (!replaced.empty()) record.notes.push_back("accepted with --accept-plugins: " + text);
  return plugins;
}

int World::ranks_here() const {
  return threads_only() ? static_cast<int>(settings.parallel.trainers()) : std::max(1, place.local_ranks);
}

int World::threads_per_rank() const {
  if (settings.device.threads > 0) return static_cast<int>(settings.device.threads);
  return std::max(1, usable_cores() / ranks_here());
}

/// Threads that were asked for. Ranks that outnumber the cores are taken to be intended.
void World::note_crowding() {
  const auto asked = static_cast<int>(settings.device.threads);
  const int cores = usable_cores();
  if (asked < 2 || asked * ranks_here() <= cores) return;
  record.notes.push_back(
      fmt::format("device.threads = {} for each of {} rank(s) on this machine, where this process may use {} "
                  "core(s): threads will "
                  "wait for each other; device.threads = 0 shares the cores",
                  asked, ranks_here(), cores));
}

int World::replicas_here() const {
  const auto mesh = static_cast<int>(settings.parallel.ranks_per_replica());
  return std::clamp((ranks_here() + mesh - 1) / mesh, 1, static_cast<int>(settings.parallel.ranks));
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
      links.control->request(kControlStop, why);
    } else if (links.control_client != nullptr) {
      links.control_client->ask(kControlStop | kControlInterrupt, why);
    } else {
      links.control->request(kControlStop | kControlInterrupt, why);
    }
  } catch (const Error&) {
    // A run that has failed ends anyway; the thread that takes signals has no caller to tell.
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

std::string World::base_folder() const {
  return request.run_dir.empty() ? "runs/" + settings.run.name.value_or("run") : request.run_dir;
}

std::string World::kept_name() const {
  return only_built_ ? "" : std::filesystem::absolute(base_folder()).lexically_normal().string();
}

bool World::goes_on_from_checkpoint() const {
  if (start.epoch > 0) return start.restored_slot >= 0;
  if (!request.resume) return false;
  const std::string attempt = open_newest_attempt(*files, base_folder()).path;
  return !CheckpointStore(*files, attempt + "/checkpoints", {}).generations().empty();
}

void World::open(const KeptPlaces& kept, bool mixed,
                 const std::function<void(const CheckpointReader&)>& check) {
  const std::string base = base_folder();
  try {
    require_writable(*files, kept.beside);
    open_folder(base, kept, mixed, check);
  } catch (const FileError& error) {
    fail_run(
        fmt::format("the run's folder '{}' cannot be used: {}. Nothing was trained; make room, or choose "
                    "another folder with "
                    "--run-dir",
                    base, error.what()));
  }
}

void World::open_folder(const std::string& base, const KeptPlaces& kept, bool mixed,
                        const std::function<void(const CheckpointReader&)>& check) {
  record.folder = request.resume ? open_newest_attempt(*files, base) : create_run_folder(*files, base);
  record.lock = std::make_unique<AttemptLock>(record.folder.path);
  record.result.folder = record.folder.path;

  record.open_store(kept, [this](const char* name) { phase.enter(name); });
  open_recovery_log();
  if (request.resume) find_checkpoint(mixed, check);
  const std::vector<LockedPlugin> plugins = plugins_of_run();
  files->write_text_atomically(record.folder.path + "/config.resolved.toml",
                               to_toml(checked.resolved.root(), true));
  write_plugin_lock(*files, record.folder.path, plugins);
  note_left_out(registry, record.notes);
  note_crowding();
  record.open_metrics();
}

// It says which checkpoints were not believed, so whatever has checkpoints has one.
void World::open_recovery_log() {
  const bool saved = request.resume && files->exists(record.store->folder());
  if (checked.component("recovery") == nullptr && !settings.emulate && !saved) return;
  std::optional<ClusterCosts> costs;
  double hours_per_slot = 0;
  if (settings.emulate) {
    costs = settings.emulate->costs;
    hours_per_slot = settings.emulate->hours / static_cast<double>(settings.run.steps);
  }
  record.recovery_log = std::make_unique<RecoveryLog>(*files, record.folder.path, costs, hours_per_slot);
}

void World::find_checkpoint(bool mixed, const std::function<void(const CheckpointReader&)>& check) {
  start.mixed = mixed;
  const PlacedPoint point = record.places->recover(!mixed);
  for (const RejectedGeneration& bad : point.rejected) record.notes.push_back(rejected_text(bad));
  record.count_fallbacks(point.rejected, point.step, settings.recovery.fallbacks);
  start.restored_slot = point.step;
  start.restored_place = point.place;
  if (start.restored_slot >= 0) {
    const CheckpointReader reader = record.places->at(point.place).open(point.step);
    check(reader);
    // Later saves are of another continuation.
    start.timeline = reader.timeline() + (record.places->generations().back() > start.restored_slot ? 1 : 0);
  }
  if (start.restored_slot < 0)
    record.notes.push_back("no usable checkpoint: the attempt starts again from slot 0");
  drop_metrics_after(
      *files, record.folder.path + "/metrics.jsonl",
      start.survivors ? start.survivors->goes_on_from() : std::max<std::int64_t>(start.restored_slot, 0));
  // A run that died between its last checkpoint and its summary has nothing left to measure.
  if (files->exists(record.folder.path + "/metrics.jsonl")) {
    for (const MetricLine& line : read_metrics(*files, record.folder.path + "/metrics.jsonl")) {
      record.result.metrics[fmt::format("{}/{}", line.split, line.name)] = line.value;
      start.restored_wall_s = std::max(start.restored_wall_s, line.wall_s);
      if (line.split.starts_with(split_name(Split::kVal)))
        start.evaluated_slot = std::max(start.evaluated_slot, line.step);
    }
  }
  try {
    Manifest earlier = read_manifest(*files, record.folder.path);
    record.earlier_segments = std::move(earlier.segments);
    record.recorded_kernels = std::move(earlier.kernels);
    record.recorded_costs = calibrated_costs(earlier);
    record.recorded_init = std::move(earlier.init);
  } catch (const Error& error) {
    record.notes.push_back(
        fmt::format("the earlier manifest cannot be read and is started anew: {}", error.what()));
  }
}

bool World::owes_evaluation() const {
  return request.resume && !start.survivors && start.restored_slot >= settings.run.steps &&
         start.evaluated_slot < start.restored_slot;
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
    const int id = participants[rank - first];
    try {
      threads.emplace_back([this, rank, &body, id] { run_rank(rank, id, body); });
    } catch (const std::system_error& error) {
      // Ranks that run already wait for this one: this ends their waits.
      links.control->fail(rank, static_cast<int>(ErrorKind::kRun),
                          fmt::format("the system cannot start a thread for rank {} of {}: {}; raise its "
                                      "limits (ulimit -u, ulimit -v), or lower parallel.ranks",
                                      rank, ranks, error.what()));
      for (int other = rank; other < end; ++other) {
        clock->enter(participants[other - first]);
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
    report_failure(rank);  // unless it was reported
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
        // Before this rank ends: its actors may wait for other ranks, which have to hear of it.
        cut_off_ = true;
        report_failure(rank);
        if (outlives()) {
          self.survivor().hold();
        } else if (links.control->failed()) {
          self.log_failure(links.control->failure());
        }
        throw;
      }
    }
    // Communicators of the new epoch end those of the old one, so no rank opens one before all are gone.
    if (again) links.end_hub->exchange(rank, "left");
  }
}

void World::report_failure(int rank) {
  try {
    rethrow_noted_call();
  } catch (const CancelledError&) {
    // The first failure is reported by the control plane.
  } catch (const DeadlineError& error) {
    await_late_pass();
    if (links.control_client == nullptr) return links.control->fail(rank, error.exit_status(), error.what());
    links.control_client->miss(rank, error.what());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDeviceLost)
      return links.control->fail(rank, error.exit_status(), error.what());
    device_lost_ = true;
    links.control->fail(rank, error.exit_status(),
                        std::string(error.what()) + record.newest_checkpoint_text());
  } catch (const std::bad_alloc&) {
    links.control->fail(rank, 1, "out of memory; use a smaller model, batch or context");
  } catch (const std::exception& error) {
    links.control->fail(rank, 1, error.what());
  } catch (...) {
    links.control->fail(rank, 1, "an object was thrown that is not a std::exception");
  }
}

int World::failure_status() const {
  return device_lost_ ? static_cast<int>(ErrorKind::kDeviceLost)
                      : std::max(1, links.control->failure_status());
}

bool World::outlives() const {
  if (!place.survives || links.control_client == nullptr || device_lost_) return false;
  // A rank that another one cut off may learn of it before the control plane says why.
  const auto until = std::chrono::steady_clock::now() + kWhyKnownWithin;
  while (cut_off_ && !links.control->failed() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return links.control_client->interrupted();
}

bool World::goes_on() {
  survival.next = links.control_client->hold(kGoOnSeconds);
  if (!survival.next) return false;
  if (record.metrics != nullptr) record.metrics->flush();
  record.end_segment("interrupted: " + links.control->failure());
  return true;
}

void World::throw_failure() const {
  if (!links.control->failed()) return;
  std::string text = links.control->failure();
  const auto kind = static_cast<ErrorKind>(failure_status());
  // The ranks of one process read one configuration: which of them found the error first says nothing.
  if (kind == ErrorKind::kConfig && threads_only() && settings.parallel.world() > 1)
    text.erase(0, text.find(": ") + 2);
  throw Error(kind, text);
}

std::vector<std::string> World::build_only() {
  only_built_ = true;
  std::vector<std::string> facts;
  const double before = anonymous_rss_mb();
  std::atomic<std::int64_t> planned = 0;
  run_ranks([&](int rank, Rank& self) {
    planned += self.trainer().planned_bytes() + self.on_policy().planned_bytes();
    if (rank == 0) {
      facts = self.trainer().facts();
      for (std::string& fact : self.on_policy().facts()) facts.push_back(std::move(fact));
    }
    links.end_hub->exchange(rank, "built");
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
  if (links.control_client != nullptr) links.control_client->on_interrupt([this] { survival.stop.heard(); });
  run_ranks([this](int rank, Rank& self) {
    if (rank == std::max(0, place.rank)) survival.stop.set_keeps(self.keep() > 0, place.rank);
    // All ranks could be built: only now does the run appear on disk.
    links.end_hub->exchange(rank, "built");
    if (start.epoch == 0) {
      if (place.generation > 0 && request.resume) self.survivor().find_survivors();
      if (rank == 0) {
        open(self.kept(), request.resume && self.continues_mixed(),
             [&](const CheckpointReader& reader) { self.trainer().check(reader); });
        if (owes_evaluation())
          links.control->request(kControlEvaluate, "of the slot at which the attempt was cut short");
      }
      share_opening(rank, self.kept());
    } else {
      if (rank == 0) record.go_back(std::max<std::int64_t>(start.restored_slot, 0));
      links.end_hub->exchange(rank, "open");
    }
    return self.run();
  });
  survival.stop.attach({});
  if (outlives() && goes_on()) return record.result;
  // Before the attempt was open nothing was written into it.
  if (place.rank <= 0 ? record.metrics == nullptr : record.store == nullptr) throw_failure();
  finish();
  return record.result;
}

void World::finish() {
  const std::lock_guard lock(end_mutex_);
  finish_locked();
}

void World::finish_locked() {
  if (links.control->failed()) {
    record.result.status = "failed";
    record.result.error = links.control->failure();
    record.result.exit_status = failure_status();
  } else {
    record.result.status = stop_reason() == StopReason::kSignal ? "interrupted" : "completed";
  }
  record.result.rank = std::max(0, place.rank);
  if (record.result.wall_s == 0) record.result.wall_s = base::seconds_since(begun_);
  // The record of a run is that of rank 0.
  if (place.rank <= 0) write_results();
}

void World::write_results() {
  record.result.peak_rss_mb = peak_rss_mb();
  record.result.peak_anonymous_mb = peak_anonymous_rss_mb();
  record.result.bytes_sent = links.bytes_sent();
  record.result.hidden_comm_share = hidden_share(record.result.communication);
  if (links.transport) {
    for (int p = 0; p < kPurposes; ++p) {
      const auto purpose = static_cast<Purpose>(p);
      const LinkCounts counts = links.transport->counts(0, purpose);
      if (counts.bytes_sent > 0)
        record.result.bytes_by_purpose[std::string(purpose_name(purpose))] = counts.bytes_sent;
      record.result.stall_s += counts.blocked_seconds;
      std::uint64_t served = 0;
      for (auto rank = settings.parallel.trainers(); rank < settings.parallel.world(); ++rank)
        served += links.transport->counts(static_cast<int>(rank), purpose).bytes_sent;
      if (served > 0)
        record.result.bytes_by_purpose["servers." + std::string(purpose_name(purpose))] = served;
    }
  }
  record.result.bytes_by_purpose["control"] += links.control->bytes();
  try {
    record.metrics->flush();
    write_summary(*files, record.result);
    record.end_segment(record.result.error.empty() ? record.result.status
                                                   : record.result.status + ": " + record.result.error);
  } catch (const std::exception& failure) {
    // Training is over and the caller still gets its result, with earlier errors of the disk.
    record.result.error = fmt::format("{}{}the end of the run could not be recorded: {}", record.result.error,
                                      record.result.error.empty() ? "" : "; ", failure.what());
    record.result.exit_status = std::max(1, record.result.exit_status);
  }
}

void World::connect(const WorldSpec& spec) {
  if (threads_only()) return links.connect(spec);
  try {
    std::string& plugins = survival.plugins;
    if (plugins.empty()) {
      for (const LockedPlugin& plugin : loaded_plugins())
        plugins += fmt::format("plugin {} {} sha256 {}\n", plugin.id, plugin.version, plugin.sha256);
    }
    agree(*links.world_hub, place.rank, "configuration", to_toml(checked.resolved.root(), false));
    agree(*links.world_hub, place.rank, "list of plugins", plugins);
    links.connect(spec);
  } catch (...) {
    cut_off_ = true;
    report_failure(place.rank);
    if (outlives()) goes_on();
    throw_failure();
    throw;
  }
}

void World::agree(TextExchange& among, int rank, std::string_view what, const std::string& text,
                  const std::string& device) {
  if (threads_only()) return;
  std::vector<std::string> devices, texts;  // the first line, and the rest
  for (const std::string& both : among.exchange(rank, fmt::format("{}\n{}", device, text))) {
    devices.push_back(both.substr(0, both.find('\n')));
    texts.push_back(both.substr(devices.back().size() + 1));
  }
  const auto differing = [](const std::vector<std::string>& all) {
    return std::find_if(all.begin(), all.end(), [&](const auto& one) { return one != all[0]; }) - all.begin();
  };
  const auto other = static_cast<std::size_t>(differing(texts)),
             odd = static_cast<std::size_t>(differing(devices));
  if (other < texts.size()) {
    fail_config(fmt::format("rank {} and rank 0 differ in their {}, {}; all processes of a run need the same",
                            other, what, first_difference(texts[other], texts[0])));
  }
  if (rank != 0 || odd == devices.size()) return;
  record.notes.push_back(fmt::format(
      "the ranks have different devices: rank 0 has {}, rank {} has {}; last bits of results depend on which "
      "rank has which, and the slowest sets the pace",
      devices[0], odd, devices[odd]));
}

// The folder and the place to continue from are rank 0's findings; the others see the same files.
void World::share_opening(int rank, const KeptPlaces& kept) {
  const std::vector<std::string> all = links.end_hub->exchange(
      rank, rank == 0 ? fmt::format("{}\n{}\n{:a}\n{}\n{}\n{}\n",
                                    std::filesystem::absolute(record.folder.path).string(),
                                    start.restored_slot, start.restored_wall_s, record.recorded_kernels,
                                    start.timeline, start.restored_place)
                      : "open");
  if (threads_only() || rank == 0) return;
  std::istringstream opened(all[0]);
  std::string slot, wall, line, restored;
  std::getline(opened, record.folder.path);
  std::getline(opened, slot);
  std::getline(opened, wall);
  std::getline(opened, record.recorded_kernels);
  std::getline(opened, line);
  std::getline(opened, restored);
  start.restored_slot = std::stoll(slot);
  start.timeline = std::stoll(line);
  start.restored_place = std::stoi(restored);
  start.restored_wall_s = std::strtod(wall.c_str(), nullptr);
  if (!files->exists(record.folder.path)) {
    fail_run(
        fmt::format("rank {} on {} cannot see the run's folder {}, which rank 0 opened; all processes of a "
                    "run need one file system, e.g. --run-dir on a shared disk",
                    rank, host_name(), record.folder.path));
  }
  record.result.folder = record.folder.path;
  require_writable(*files, kept.beside);
  record.open_store(kept, [this](const char* name) { phase.enter(name); });
}

// The end of a run whose kernel does not return (pass_watch.hpp). The other ranks hear of it as of every
// failure; a process whose own rank is held by the kernel ends from outside of it.

namespace {

/// Under a simulated clock [run] deadline is of simulated time, and kernels take the machine's.
constexpr double kLeastUnderSimulatedClock = 300;
/// Ranks beside a lost one have so long to end by themselves.
constexpr double kOthersEndWithin = 5;
constexpr double kRecordWithin = 5;

}  // namespace

void World::watch_passes() {
  const double deadline = settings.run.deadline;
  pass_watch = std::make_unique<PassWatch>(
      clock->simulated() ? std::max(deadline, kLeastUnderSimulatedClock) : deadline,
      [this] { return has_control_ && links.control->failed(); },
      [this](const LatePass& pass) { end_late(pass); }, [this](const LatePass& pass) { end_lost(pass); });
}

// Where the run outlives deaths, so it does here: the process ends, and another takes its place.
void World::end_late(const LatePass& pass) {
  if (!has_control_) return;
  if (pass.host != nullptr) pass.host->log(LogLevel::kError, pass.text);
  const int rank = pass.host != nullptr ? pass.host->rank() : std::max(0, place.rank);
  if (place.survives && links.control_client != nullptr) return links.control_client->miss(rank, pass.text);
  links.control->fail(rank, pass.exit_status, pass.text);
}

void World::end_lost(const LatePass& pass) {
  if (!plugin::ends_process_when_plugins_hang()) return;
  if (running_ > 1 && pass.over_s < kOthersEndWithin) return;
  const std::string why = has_control_ ? links.control->failure() : "";
  std::string text = "tenon: " + why;
  if (why.find(pass.text) == std::string::npos) text += why.empty() ? pass.text : "; " + pass.text;
  text += "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  write_lost(pass);
  ::_exit(pass.exit_status);
}

// The rank that is held may hold what this needs, and components are asked: it must end, too.
void World::write_lost(const LatePass& pass) {
  const std::unique_lock lock(end_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !has_control_) return;
  const GuardContext what{"", "the record of the run"};
  const plugin::HangWatch watch(what, "the last write", kRecordWithin);
  const bool goes_on =
      place.survives && links.control_client != nullptr && links.control_client->interrupted();
  if (goes_on || (place.rank <= 0 ? record.metrics == nullptr : record.store == nullptr)) return;
  record.result.steps =
      std::max(record.result.steps, std::max<std::int64_t>(0, pass.host == nullptr ? 0 : pass.host->slot()));
  finish_locked();
}

void World::await_late_pass() const {
  if (clock->simulated() || (threads_only() && !pass_watch->expects_one())) return;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(pass_watch->patience());
  while (!links.control->failed() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace tenon::train
