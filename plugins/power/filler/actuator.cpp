#include "actuator.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/sdk/ops/background.hpp>

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <system_error>
#include <utility>

namespace tenon::filler {
namespace {

constexpr double kSecond = 1e-9;  ///< of a nanosecond

std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::int64_t steady_ns() {
  return clock_ns(CLOCK_MONOTONIC);
}

/// CPU time of the calling thread.
std::int64_t thread_ns() {
  return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

void sleep_ns(double ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(ns)));
}

/// Adds without a locked instruction: one thread writes.
template <typename Number>
void raise(std::atomic<Number>& value, Number by) {
  value.store(value.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

/// While it exists, threads started by this one take no signals: those are for the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) ::sigdelset(&all, fault);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

bool works_on_device(const PowerPlace& place) {
  return place.device != nullptr && place.device->space() != MemorySpace::kHost;
}

/// Rounds that take block_s of this thread's CPU time: the median of five trials, after one that wakes the
/// units.
std::int64_t rounds_of(const FmaRounds& rounds, double block_s) {
  constexpr std::int64_t kTrial = 1'000'000;  // ns
  FmaState state;
  const auto time = [&](std::int64_t count) {
    const std::int64_t begin = thread_ns();
    rounds.run(state, count);
    return std::max<std::int64_t>(1, thread_ns() - begin);
  };
  std::int64_t count = 1000;
  while (time(count) < kTrial) count *= 2;
  std::int64_t taken[5];
  for (std::int64_t& ns : taken) ns = time(count);
  std::sort(std::begin(taken), std::end(taken));
  return std::max<std::int64_t>(
      1, std::llround(static_cast<double>(count) * block_s / kSecond / static_cast<double>(taken[2])));
}

/// The smallest class end that this share of all counts does not exceed, and no more than the largest.
double quantile_s(const std::vector<const TimeHistogram*>& parts, double share) {
  std::uint64_t all = 0;
  std::int64_t largest = 0;
  for (const TimeHistogram* part : parts) {
    all += part->count();
    largest = std::max(largest, part->largest_ns());
  }
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(all)));
  std::uint64_t below = 0;
  for (int index = 0; index < TimeHistogram::kClasses && all > 0; ++index) {
    for (const TimeHistogram* part : parts) below += part->in_class(index);
    if (below >= wanted)
      return kSecond * static_cast<double>(std::min(largest, TimeHistogram::end_ns(index)));
  }
  return kSecond * static_cast<double>(largest);
}

}  // namespace

// Times below 16 ns have a class each; then 16 of an octave.

void TimeHistogram::add(std::int64_t ns) noexcept {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(0, ns));
  int index = static_cast<int>(value);
  if (value >= 16) {
    const int octave = std::bit_width(value) - 5;  // value >> octave is from 16 to 31
    index = std::min(kClasses - 1, 16 * (octave + 1) + static_cast<int>(value >> octave) - 16);
  }
  raise(counts_[index], std::uint64_t{1});
  if (ns > largest_ns()) largest_.store(ns, std::memory_order_relaxed);
}

std::int64_t TimeHistogram::end_ns(int index) noexcept {
  if (index < 16) return index;
  return ((std::int64_t{index % 16} + 17) << (index / 16 - 1)) - 1;
}

std::uint64_t TimeHistogram::count() const noexcept {
  std::uint64_t all = 0;
  for (const auto& count : counts_) all += count.load(std::memory_order_relaxed);
  return all;
}

double Actuator::Ramp::due_ns(std::int64_t at_ns) const {
  const auto length = static_cast<double>(length_ns), passed = static_cast<double>(at_ns - begin_ns);
  const double within = std::clamp(passed / length, 0.0, 1.0), after = std::max(0.0, passed - length);
  return up ? length * within * within / 2 + after : length * (within - within * within / 2);
}

Actuator::~Actuator() {
  finish(false);
}

double Actuator::run_now() const {
  return place_.host != nullptr ? place_.host->now() : std::numeric_limits<double>::quiet_NaN();
}

void Actuator::prepare(const PowerPlace& place) {
  if (settings_.phases == 0 && settings_.ramp_s == 0)
    fail_config(
        "'fill' names no phase and ramp_seconds is 0: nothing would be filled; name a phase, or leave the "
        "actuator out");
  if (!(settings_.block_s >= kLeastBlock && settings_.block_s <= kMostBlock))
    fail_config(fmt::format("'block_s' is {:g} s; filling a run needs from {:g} to {:g} s", settings_.block_s,
                            kLeastBlock, kMostBlock));
  if (works_on_device(place) && settings_.threads > 1)
    fail_config(
        fmt::format("'fill_threads' is {}, and on a device with memory of its own one thread starts all "
                    "blocks; leave it out",
                    settings_.threads));
}

void Actuator::start(const PowerPlace& place) {
  finish(false);
  device_block_s_ = 0;
  place_ = place;
  spans_ = place.host != nullptr ? static_cast<SpanSink*>(place.host->query(SpanSink::kId)) : nullptr;
  changes_ = std::make_unique<Change[]>(kChanges);
  intervals_ = std::make_unique<Interval[]>(kIntervals);
  intervals_written_ = intervals_read_ = 0;
  fills_ = wanted_ns_ = 0;
  fills_begun_ = 0;
  word_ = 0;
  last_begun_ = 0;
  failed_ = false;
  if (works_on_device(place)) {
    open_device(*place.device);
  } else {
    rounds_ = fma_rounds().front();
    rounds_in_block_ = rounds_of(rounds_, settings_.block_s);
  }
  begin_threads();
  if (settings_.ramp_s == 0) return;
  up_ = {steady_ns(), std::llround(settings_.ramp_s / kSecond), true};
  change(Command::kRampUp, run_now());
  word_.notify_all();
  sleep_ns(settings_.ramp_s / kSecond);
  // The load stays up until the first phase.
  filling_ = true;
  ++fills_;
  fill_began_ns_ = steady_ns();
  change(Command::kFill, run_now());
  word_.notify_all();
}

void Actuator::open_device(Device& device) {
  auto* const work = static_cast<BackgroundWork*>(device.query(BackgroundWork::kId));
  if (work == nullptr)
    fail_run(
        fmt::format("the filler has nothing to run on the device: it offers no {}; leave the actuator out",
                    BackgroundWork::kId));
  device_block_s_ = work->open(settings_.block_s);
  device_work_ = work;
}

void Actuator::begin_threads() {
  workers_.clear();
  running_ = true;
  const bool works_itself = device_work_ == nullptr;
  const int wanted = settings_.threads > 0 ? settings_.threads : place_.threads;
  const int count = works_itself ? std::max(1, wanted) : 1;
  try {
    const SignalsBlocked blocked;
    for (int i = 0; i < count; ++i) {
      Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
      worker.thread = std::thread([this, &worker] { work(worker); });
      ::pthread_setname_np(worker.thread.native_handle(), "tenon-filler");
      if (!works_itself) continue;  // it sleeps between blocks
      const sched_param none{};
      // The thread waits for its first word meanwhile.
      if (const int code = ::pthread_setschedparam(worker.thread.native_handle(), SCHED_IDLE, &none);
          code != 0)
        throw std::system_error(code, std::generic_category(), "sched_setscheduler(SCHED_IDLE)");
    }
  } catch (const std::system_error& error) {
    finish(false);
    fail_run(
        fmt::format("the filler cannot start {} threads of class SCHED_IDLE: {}; without that class they "
                    "would take time from the training",
                    count, error.what()));
  }
}

std::uint32_t Actuator::change(Command command, double run_s) {
  const std::uint32_t word =
      ((word_.load(std::memory_order_relaxed) & ~7u) + 8u) | static_cast<std::uint32_t>(command);
  Change& place = changes_[word / 8 % kChanges];
  place.word.store(word_.load(std::memory_order_relaxed), std::memory_order_relaxed);  // names no change here
  place.ns.store(steady_ns(), std::memory_order_release);
  place.run_s.store(run_s, std::memory_order_release);
  place.word.store(word, std::memory_order_release);
  // Before notify_all looks for threads that wait: in the other order one could miss both, and sleep on.
  word_.store(word, std::memory_order_seq_cst);
  return word;
}

bool Actuator::time_of(std::uint32_t word, ChangeTime& time) const {
  const Change& place = changes_[word / 8 % kChanges];
  const std::uint32_t before = place.word.load(std::memory_order_acquire);
  time = {place.ns.load(std::memory_order_acquire), place.run_s.load(std::memory_order_acquire)};
  const std::uint32_t after = place.word.load(std::memory_order_relaxed);
  return before == after && before / 8 == word / 8;
}

void Actuator::on_phase(Phase phase, double at_s) {
  const bool fills = (settings_.phases >> static_cast<unsigned>(phase) & 1u) != 0;
  if (fills == filling_ || !running_) return;
  filling_ = fills;
  const std::uint32_t word = change(fills ? Command::kFill : Command::kQuiet, at_s);
  const std::int64_t now = changes_[word / 8 % kChanges].ns.load(std::memory_order_relaxed);
  if (!fills) {
    wanted_ns_ += now - fill_began_ns_;
    return;
  }
  word_.notify_all();
  fill_began_ns_ = now;
  ++fills_;
  hand_over_spans();
}

void Actuator::stop() {
  finish(true);
}

void Actuator::finish(bool ramps) {
  if (!running_) return;
  if (filling_) on_phase(Phase::kEnd, run_now());
  if (ramps && settings_.ramp_s > 0) {
    down_ = {steady_ns(), std::llround(settings_.ramp_s / kSecond), false};
    change(Command::kRampDown, run_now());
    word_.notify_all();
    sleep_ns(settings_.ramp_s / kSecond);
  }
  change(Command::kQuit, run_now());
  word_.notify_all();
  for (const auto& worker : workers_) {
    if (!worker->thread.joinable()) continue;
    // On a busy machine an idle thread waits long for the core on which to end. Not every user may raise it.
    const sched_param none{};
    ::pthread_setschedparam(worker->thread.native_handle(), SCHED_OTHER, &none);
    worker->thread.join();
  }
  running_ = false;
  if (device_work_ != nullptr) std::exchange(device_work_, nullptr)->close();
  hand_over_spans();
}

/// On the training thread: the sink has a lock, and its memory grows.
void Actuator::hand_over_spans() {
  const std::uint32_t written = intervals_written_.load(std::memory_order_acquire);
  std::uint32_t read = intervals_read_.load(std::memory_order_relaxed);
  for (; read != written; ++read) {
    const Interval& interval = intervals_[read % kIntervals];
    spans_->add({"filler", "fill", interval.begin_s, interval.event_s});
    spans_->add({"filler", "drain", interval.event_s, interval.end_s});
  }
  intervals_read_.store(read, std::memory_order_release);
}

void Actuator::work(Worker& self) {
  try {
    obey(self);
  } catch (const Error& error) {
    // A lost device ends the run at its next operator; another refusal ends the filler alone.
    failed_.store(true, std::memory_order_relaxed);
    if (place_.host != nullptr)
      place_.host->log(LogLevel::kWarning, fmt::format("the filler has ended: {}", error.what()));
  }
}

void Actuator::obey(Worker& self) {
  for (;;) {
    const std::uint32_t word = word_.load(std::memory_order_acquire);
    switch (command_of(word)) {
      case Command::kQuiet:
        word_.wait(word, std::memory_order_acquire);
        break;
      case Command::kFill:
        fill(self, word);
        break;
      case Command::kRampUp:
        follow(self, word, up_);
        break;
      case Command::kRampDown:
        follow(self, word, down_);
        break;
      case Command::kQuit:
        return;
    }
  }
}

std::int64_t Actuator::run_block(Worker& self) {
  if (device_work_ != nullptr && device_work_->in_flight() >= kInFlight) {
    sleep_ns(device_block_s_ / kSecond / 2);
    return 0;
  }
  if (device_work_ != nullptr)
    device_work_->start_block();
  else
    rounds_.run(self.state, rounds_in_block_);
  const std::int64_t before = std::exchange(self.cpu_ns, thread_ns());
  self.used_ns.store(static_cast<std::uint64_t>(self.cpu_ns), std::memory_order_relaxed);
  raise(self.block_count, std::uint64_t{1});
  if (device_work_ != nullptr) return std::llround(device_block_s_ / kSecond);
  self.blocks.add(self.cpu_ns - before);
  return self.cpu_ns - before;
}

void Actuator::fill(Worker& self, std::uint32_t word) {
  std::uint32_t last = last_begun_.load(std::memory_order_relaxed);
  // Words rise by less than 2^31 while a thread sleeps, so their difference tells which is newer.
  while (static_cast<std::int32_t>(word - last) > 0) {
    if (!last_begun_.compare_exchange_weak(last, word, std::memory_order_relaxed)) continue;
    fills_begun_.fetch_add(1, std::memory_order_relaxed);
    break;
  }
  const std::int64_t begin_ns = steady_ns();
  self.cpu_ns = thread_ns();
  std::int64_t block_ns = 0;
  do {
    block_ns = run_block(self);
  } while (word_.load(std::memory_order_acquire) == word);
  while (device_work_ != nullptr && device_work_->in_flight() > 0) sleep_ns(device_block_s_ / kSecond / 4);
  note_end(self, word, begin_ns, block_ns);
}

void Actuator::note_end(Worker& self, std::uint32_t word, std::int64_t begin_ns, std::int64_t block_ns) {
  const std::int64_t end_ns = steady_ns();
  raise(self.busy_ns, static_cast<std::uint64_t>(end_ns - begin_ns));
  ChangeTime began, ended;
  if (!time_of(word + 8, ended)) {
    raise(self.drains_unmeasured, std::uint64_t{1});
    return;
  }
  const std::int64_t drain_ns = std::max<std::int64_t>(0, end_ns - ended.ns);
  self.drains.add(drain_ns);
  if (device_work_ == nullptr) self.drains_cpu.add(std::min(drain_ns, block_ns));
  if (&self != workers_.front().get() || spans_ == nullptr || !spans_->wanted()) return;
  if (!time_of(word, began) || !std::isfinite(began.run_s) || !std::isfinite(ended.run_s)) return;
  const std::uint32_t written = intervals_written_.load(std::memory_order_relaxed);
  if (written - intervals_read_.load(std::memory_order_acquire) == kIntervals) return;
  const auto after_event = [](std::int64_t ns, const ChangeTime& event) {
    return event.run_s + kSecond * static_cast<double>(ns - event.ns);
  };
  intervals_[written % kIntervals] = {std::min(after_event(begin_ns, began), ended.run_s), ended.run_s,
                                      after_event(std::max(end_ns, ended.ns), ended)};
  intervals_written_.store(written + 1, std::memory_order_release);
}

/// Keeps the time of work at the integral of the duty.
void Actuator::follow(Worker& self, std::uint32_t word, const Ramp& ramp) {
  std::int64_t done_ns = 0;
  self.cpu_ns = thread_ns();
  do {
    if (static_cast<double>(done_ns) < ramp.due_ns(steady_ns()))
      done_ns += run_block(self);
    else
      sleep_ns(settings_.block_s / kSecond / 2);
  } while (word_.load(std::memory_order_acquire) == word);
}

void Actuator::account(const std::function<void(std::string_view, double)>& sink) const {
  std::vector<const TimeHistogram*> blocks, drains, drains_cpu;
  std::uint64_t busy = 0, used = 0, count = 0, unmeasured = 0;
  std::int64_t longest_drain = 0;
  for (const auto& worker : workers_) {
    blocks.push_back(&worker->blocks);
    drains.push_back(&worker->drains);
    drains_cpu.push_back(&worker->drains_cpu);
    busy += worker->busy_ns.load(std::memory_order_relaxed);
    used += worker->used_ns.load(std::memory_order_relaxed);
    unmeasured += worker->drains_unmeasured.load(std::memory_order_relaxed);
    count += worker->block_count.load(std::memory_order_relaxed);
    longest_drain = std::max(longest_drain, worker->drains.largest_ns());
  }
  const auto threads = static_cast<double>(std::max<std::size_t>(1, workers_.size()));
  // A fill that still runs may yet be begun.
  const bool open = filling_ && running_, begun = last_begun_.load() == word_.load();
  const std::int64_t over = fills_ - (open ? 1 : 0);
  const std::int64_t over_begun = std::int64_t{fills_begun_.load()} - (open && begun ? 1 : 0);
  const std::int64_t wanted = wanted_ns_ + (open ? steady_ns() - fill_began_ns_ : 0);
  sink("threads", static_cast<double>(workers_.size()));
  sink("fills", static_cast<double>(fills_));
  sink("started_late", static_cast<double>(std::max<std::int64_t>(0, over - over_begun)));
  sink("phases_s", kSecond * static_cast<double>(wanted));
  sink("busy_s", kSecond * static_cast<double>(busy) / threads);
  sink("blocks", static_cast<double>(count));
  sink("cpu_s", kSecond * static_cast<double>(used));
  if (device_block_s_ > 0) {
    sink("device_block_s", device_block_s_);
    sink("failed", failed_.load() ? 1 : 0);
  } else {
    sink("block_p50_s", quantile_s(blocks, 0.5));
    sink("block_p99_s", quantile_s(blocks, 0.99));
    sink("drain_cpu_p99_s", quantile_s(drains_cpu, 0.99));
  }
  sink("drain_p50_s", quantile_s(drains, 0.5));
  sink("drain_p99_s", quantile_s(drains, 0.99));
  sink("drain_max_s", kSecond * static_cast<double>(longest_drain));
  sink("drains_unmeasured", static_cast<double>(unmeasured));
}

}  // namespace tenon::filler
