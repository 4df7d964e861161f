#include "plugin/hang_watch.hpp"

#include "base/signals.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tenon::plugin {
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
