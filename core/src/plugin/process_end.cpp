// Ends of a process inside a plugin: signals, exit and calls that do not return.
#include "plugin/process_end.hpp"

#include "base/signals.hpp"
#include "plugin/guard.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tenon::plugin {

// Signals and exit. Only async-signal-safe calls in this part: no allocation, no fmt, no locks.

namespace {

class SignalLine {
 public:
  void put(std::string_view text) noexcept {
    const std::size_t length = text.size() < sizeof buffer_ - size_ ? text.size() : sizeof buffer_ - size_;
    std::memcpy(buffer_ + size_, text.data(), length);
    size_ += length;
  }
  void put(std::int64_t value) noexcept {
    char digits[20];
    std::size_t at = sizeof digits;
    do {
      digits[--at] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value > 0);
    put(std::string_view(digits + at, sizeof digits - at));
  }
  void write() noexcept { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, buffer_, size_); }

 private:
  char buffer_[512];
  std::size_t size_ = 0;
};

void put_call(SignalLine& line, const GuardContext& call) noexcept {
  line.put(" inside plugin ");
  line.put(call.plugin);
  if (!call.component.empty()) {
    line.put(", component ");
    line.put(call.component);
  }
  if (call.rank >= 0) {
    line.put(", rank ");
    line.put(call.rank);
  }
  if (call.step >= 0) {
    line.put(", step ");
    line.put(call.step);
  }
}

std::atomic<pid_t> reporting{0};  ///< the first thread that a signal ends

void report(int signal) {
  const pid_t self = ::gettid();
  pid_t first = 0;
  if (!reporting.compare_exchange_strong(first, self) && first != self) {
    for (;;) ::pause();  // the process ends when the first thread has reported
  }
  ::signal(signal, SIG_DFL);
  SignalLine line;
  line.put("tenon: fatal signal ");
  line.put(signal);
  line.put(" (");
  line.put(sigdescr_np(signal));
  line.put(")");
  if (const GuardContext* call = current_plugin_call()) {
    put_call(line, *call);
  } else {
    line.put(" outside any plugin call");
  }
  line.put("\n");
  line.write();
  ::raise(signal);
}

// exit() runs its handlers on the thread that called it.
void report_exit() {
  const GuardContext* call = current_plugin_call();
  if (call == nullptr) return;
  SignalLine line;
  line.put("tenon: exit was called");
  put_call(line, *call);
  line.put("\n");
  line.write();
  ::_exit(static_cast<int>(ErrorKind::kPlugin));
}

}  // namespace

void install_fatal_signal_handler() {
  struct sigaction action {};
  action.sa_handler = report;
  action.sa_flags = SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

void install_exit_handler() {
  std::atexit(report_exit);
}

// Calls that do not return.

namespace {

using Clock = std::chrono::steady_clock;

struct Call {
  const GuardContext* context;
  const char* what;
  double seconds;
  Clock::time_point deadline;
};

/// One thread for all calls of the process.
class Watcher {
 public:
  Watcher() {
    const base::WithoutSignals none;
    std::thread([this] { watch(); }).detach();
  }
  void add(const Call& call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(call);
    changed_.notify_one();
  }
  void remove(const GuardContext* context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(calls_, [context](const Call& call) { return call.context == context; });
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (true) {
      const auto first = std::min_element(
          calls_.begin(), calls_.end(), [](const Call& a, const Call& b) { return a.deadline < b.deadline; });
      if (first == calls_.end()) {
        changed_.wait(lock);
      } else if (Clock::now() < first->deadline) {
        changed_.wait_until(lock, first->deadline);
      } else {
        give_up(*first);
      }
    }
  }

  [[noreturn]] static void give_up(const Call& call) {
    const std::string text = fmt::format(
        "tenon: {}: {} did not return within {} s. Code of a plugin cannot be stopped from outside, so the "
        "program ends.\n",
        guard_place(*call.context), call.what, call.seconds);
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    ::_exit(static_cast<int>(ErrorKind::kPlugin));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
};

std::atomic<bool> wanted{false};

/// Lives until the process ends: its thread does, too.
Watcher& watcher() {
  static Watcher* const only = new Watcher;
  return *only;
}

}  // namespace

void end_process_when_plugins_hang() {
  wanted.store(true);
}

bool ends_process_when_plugins_hang() {
  return wanted.load();
}

HangWatch::HangWatch(const GuardContext& context, const char* what, double seconds) {
  if (!wanted.load()) return;
  const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  watched_ = &context;
  watcher().add({&context, what, seconds, Clock::now() + patience});
}

HangWatch::~HangWatch() {
  if (watched_ != nullptr) watcher().remove(watched_);
}

}  // namespace tenon::plugin
