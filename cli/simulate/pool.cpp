// One thread, which polls: every wait is bounded, and no worker waits for another.
#include "simulate/pool.hpp"

#include "simulate/worker.hpp"

#include "base/elapsed.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tenon::simulate {
namespace {

constexpr std::size_t kKeptWords = 400;

}  // namespace

WorkerProcess::WorkerProcess(const std::string& program, const std::vector<std::string>& arguments) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail_run(fmt::format("cannot make a socket for a worker: {}", std::strerror(errno)));
  socket_.reset(ends[0]);
  const base::FileDescriptor far_end(ends[1]);
  base::Pipe words(" for a worker");
  base::ChildFiles files;
  files.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  files.copy(words.write_end.get(), STDOUT_FILENO);
  files.copy(words.write_end.get(), STDERR_FILENO);
  files.copy(far_end.get(), kAnswerDescriptor);
  // A group of its own: this program handles Ctrl-C. The tasks run in parallel; a worker with several threads
  // would take processors from the others.
  const int status = child_.start({program, arguments, {"OMP_NUM_THREADS=1"}}, files);
  if (status != 0) fail_run(fmt::format("cannot start a worker, '{}': {}", program, std::strerror(status)));
  words_ = std::move(words.read_end);
  ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
}

bool WorkerProcess::send(const Order& order) {
  const std::string line = order_line(order);
  return ::send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
}

void WorkerProcess::drain() {
  base::drain_last(words_, last_words_, kKeptWords);
  base::drain(socket_, [&](std::string_view bytes) { lines_.add(bytes); });
}

bool WorkerProcess::next(Answer& answer) {
  drain();
  std::string line;
  if (!lines_.next(line)) return false;
  answer = parse_answer(line);
  return true;
}

bool WorkerProcess::ended() {
  if (child_.running() && child_.ended()) {
    child_.kill_remains();
    drain();
  }
  return !child_.running();
}

std::string WorkerProcess::describe_exit() const {
  std::string text = "its process " + base::describe_exit(child_.status());
  std::string words = last_words_;
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words.empty() ? text : text + "; its last words: " + words;
}

namespace {

constexpr std::chrono::milliseconds kSlice{100};
constexpr int kMostFailedStarts = 3;

/// A worker reports itself that its time is over; one that does not is killed after this.
double patience(double task_timeout_s) {
  return task_timeout_s + std::max(1.0, 0.1 * task_timeout_s);
}

}  // namespace

Pool::Pool(ResultFolder& folder, Tasks& tasks, const Settings& settings, WorkerSpec worker,
           std::string program)
    : folder_(folder),
      tasks_(tasks),
      settings_(settings),
      worker_(std::move(worker)),
      program_(std::move(program)),
      slots_(std::max<std::int64_t>(1, settings.workers)) {}

PoolResult Pool::run(const std::function<bool()>& between) {
  const Clock::time_point begun = Clock::now();
  try {
    while (!tasks_.settled()) {
      if (!between()) result_.cut_short = "stopped";
      if (settings_.timeout_s > 0 && base::seconds_since(begun) > settings_.timeout_s) {
        result_.cut_short = "timeout_s is over";
        break;
      }
      staff(result_.cut_short.empty());
      const bool idle =
          std::none_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.busy; });
      if (!result_.cut_short.empty() && idle) break;
      listen(kSlice);
      folder_.save(false);
    }
  } catch (...) {
    slots_.clear();
    folder_.save(true);
    throw;
  }
  slots_.clear();  // a running task is lost, without a sample
  folder_.save(true);
  result_.wall_s = base::seconds_since(begun);
  return result_;
}

/// Drawn by index, so that the same tasks are hit with any number of workers.
Fate Pool::fate_of(const Tasks::Next& next) const {
  const auto drawn = [&](const char* purpose, double share) {
    return next.attempt == 1 &&
           random_uniform(random_key(0, purpose), 0, static_cast<std::uint64_t>(next.index)) < share;
  };
  if (drawn("simulate.crash", settings_.crash_share)) return Fate::kCrash;
  return drawn("simulate.hang", settings_.hang_share) ? Fate::kHang : Fate::kRun;
}

void Pool::staff(bool begin_tasks) {
  if (!begin_tasks) return;
  for (Slot& slot : slots_) {
    if (slot.process == nullptr) {
      // As many as can have work: workers that are started but not ready will take some of it.
      const auto starting = std::count_if(slots_.begin(), slots_.end(), [](const Slot& other) {
        return other.process != nullptr && !other.busy;
      });
      if (tasks_.waiting() <= starting) continue;
      slot.process = std::make_unique<WorkerProcess>(program_, worker_arguments(worker_));
      slot.begun = Clock::now();
    }
    if (!slot.ready || slot.busy) continue;
    const std::optional<Tasks::Next> next = tasks_.take();
    if (!next) return;
    slot.index = next->index;
    slot.busy = true;
    slot.progress.clear();
    slot.begun = Clock::now();
    // An order that does not arrive is noticed when the process is found dead.
    slot.process->send({next->index, fate_of(*next)});
  }
}

void Pool::listen(std::chrono::milliseconds limit) {
  std::vector<pollfd> ends;
  for (const Slot& slot : slots_) {
    if (slot.process == nullptr) continue;
    for (const int end : {slot.process->answers(), slot.process->words()}) {
      if (end >= 0) ends.push_back({end, POLLIN, 0});
    }
  }
  ::poll(ends.data(), ends.size(), static_cast<int>(limit.count()));
  for (Slot& slot : slots_) {
    if (slot.process == nullptr) continue;
    hear(slot);
    if (slot.process == nullptr) continue;
    if (slot.process->ended()) {
      hear(slot);  // its last messages
      if (slot.process != nullptr) lost(slot, slot.process->describe_exit());
    } else {
      enforce_limit(slot);
    }
  }
}

void Pool::hear(Slot& slot) {
  for (Answer answer; slot.process->next(answer);) take_answer(slot, answer);
}

void Pool::take_answer(Slot& slot, const Answer& answer) {
  switch (answer.kind) {
    case Answer::Kind::kReady:
      slot.ready = true;
      failed_starts_ = 0;
      return;
    case Answer::Kind::kStep:
      slot.progress = fmt::format(", at step {} of {}", answer.done, answer.total);
      return;
    case Answer::Kind::kDone:
      if (!slot.busy) fail_run("a worker process finished a task that it was not given");
      tasks_.finished(slot.index, answer.digest);
      return rest(slot);
    case Answer::Kind::kFailed:
      break;
  }
  if (!slot.busy) fail_run("a worker process failed in a task that it was not given: " + answer.text);
  if (answer.failure == "files") {
    tasks_.give_back(slot.index);
    fail_run(fmt::format(
        "sample {} cannot be written: {}. What was finished is recorded; the same command continues",
        slot.index, answer.text));
  }
  if (answer.failure == "time") {
    tasks_.interrupted(slot.index, "time", answer.text);
  } else {
    tasks_.refused(slot.index, answer.text);
  }
  rest(slot);
}

void Pool::rest(Slot& slot) {
  result_.busy_s += base::seconds_since(slot.begun);
  slot.busy = false;
}

void Pool::enforce_limit(Slot& slot) {
  if (!slot.busy && slot.ready) return;
  const double took = base::seconds_since(slot.begun);
  if (took <= patience(settings_.task_timeout_s)) return;
  slot.process->end();
  if (slot.busy) {
    tasks_.interrupted(
        slot.index, "time",
        fmt::format("not done within task_timeout_s = {} s{}; its process was killed after {:.1f} s",
                    settings_.task_timeout_s, slot.progress, took));
    rest(slot);
    ++result_.lost_workers;
    slot = Slot();
  } else {
    lost(slot, fmt::format("it was not ready after {:.1f} s", took));
  }
}

void Pool::lost(Slot& slot, const std::string& how) {
  const bool was_ready = slot.ready;
  if (slot.busy) {
    tasks_.interrupted(slot.index, "lost", how + slot.progress);
    rest(slot);
  }
  ++result_.lost_workers;
  slot = Slot();
  if (!was_ready && ++failed_starts_ >= kMostFailedStarts)
    fail_run(fmt::format("{} workers in a row did not start; the last one: {}", failed_starts_, how));
}

}  // namespace tenon::simulate
