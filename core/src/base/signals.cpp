// A thread waits with sigwaitinfo. A handler only sends on to it what comes to a thread that does not block
// the signals: of a library that changed its mask, or of a program that had threads before.
#include "base/signals.hpp"

#include "base/elapsed.hpp"
#include "base/file_descriptor.hpp"
#include "base/standard_streams.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace tenon::base {
namespace {

constexpr std::chrono::seconds kInsistsAfter{1};
constexpr std::size_t kStackBytes = 256 << 10;
constexpr std::array kStops{SIGINT, SIGTERM, SIGUSR1};
constexpr std::array kNames{"SIGINT", "SIGTERM", "SIGUSR1"};

/// A fault is handled where it happens.
sigset_t all_but_faults() {
  sigset_t set;
  ::sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) ::sigdelset(&set, fault);
  return set;
}

std::atomic<bool> owned{false};
std::atomic<pthread_t> owning_thread{};

void send_on(int signal) {
  const int code = errno;
  if (owned.load()) ::pthread_kill(owning_thread.load(), signal);
  errno = code;
}

/// The terminal's driver sends Ctrl-C to the group in the foreground.
bool in_foreground() {
  const base::FileDescriptor terminal(::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));
  return terminal && ::tcgetpgrp(terminal.get()) == ::getpgrp();
}

}  // namespace

struct StopListener::Entry {
  std::function<void(const std::string&, bool)> asked;
  std::function<void()> insisted;
  bool told = false;
  std::optional<Steady::time_point> typed_first;
};

struct SignalOwner {
  explicit SignalOwner(bool with_user) : taken(with_user ? 3 : 2), made_by(::pthread_self()) {
    ::sigemptyset(&stops);
    for (std::size_t i = 0; i < taken; ++i) ::sigaddset(&stops, kStops[i]);
    ::pthread_sigmask(SIG_BLOCK, &stops, &mask_before);
    start();
    owning_thread = thread;
    owned = true;
    struct sigaction action {};
    action.sa_handler = send_on;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < taken; ++i) ::sigaction(kStops[i], &action, &actions_before[i]);
  }

  ~SignalOwner() {
    ending = true;
    owned = false;
    // Blocked there: it ends the thread's wait, not the thread.
    ::pthread_kill(thread, SIGTERM);  // NOLINT(bugprone-bad-signal-to-kill-thread)
    ::pthread_join(thread, nullptr);
    // One that came after the last look would end the process when it is unblocked, after a run that ended
    // well.
    const timespec at_once{0, 0};
    while (::sigtimedwait(&stops, nullptr, &at_once) > 0) continue;
    for (std::size_t i = 0; i < taken; ++i) ::sigaction(kStops[i], &actions_before[i], nullptr);
    if (::pthread_equal(made_by, ::pthread_self()) != 0)
      ::pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
  }

  /// The stack is small, which is enough for its short calls.
  void start() {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, kStackBytes);
    const int error = ::pthread_create(
        &thread, &attributes,
        [](void* self) -> void* {
          static_cast<SignalOwner*>(self)->run();
          return nullptr;
        },
        this);
    ::pthread_attr_destroy(&attributes);
    if (error == 0) return;
    ::pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
    fail_run(fmt::format("no thread can be started: {}", std::strerror(error)));
  }

  void run() {
    const sigset_t others = all_but_faults();
    ::pthread_sigmask(SIG_SETMASK, &others, nullptr);
    while (true) {
      const int signal = ::sigwaitinfo(&stops, nullptr);
      if (ending.load()) return;
      if (signal > 0) take(signal);
    }
  }

  void take(int signal) {
    const std::lock_guard lock(mutex);
    const bool typed = signal == SIGINT && in_foreground();
    for (StopListener::Entry* entry : entries) {
      const Steady::time_point now = Steady::now();
      const bool insists = typed && entry->typed_first && now - *entry->typed_first >= kInsistsAfter;
      if (typed && !entry->typed_first) entry->typed_first = now;
      if (!std::exchange(entry->told, true)) {
        entry->asked(kNames[place_of(signal)], typed);
      } else if (insists) {
        entry->insisted();
      }
    }
    // The listeners have obeyed by now; a later signal belongs to the same request, unless it is typed.
    if (entries.empty() && (!obeyed || typed)) end_by(signal);
    obeyed = obeyed || !entries.empty();
  }

  /// Ends the process as the signal does by default.
  void end_by(int signal) {
    if (actions_before[place_of(signal)].sa_handler == SIG_IGN) return;
    ::signal(signal, SIG_DFL);
    sigset_t one;
    ::sigemptyset(&one);
    ::sigaddset(&one, signal);
    ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    ::raise(signal);
    ::_exit(128 + signal);  // the first process of a container has no default actions
  }

  static std::size_t place_of(int signal) {
    return std::find(kStops.begin(), kStops.end(), signal) - kStops.begin();
  }

  const std::size_t taken;  // of kStops
  sigset_t stops{};
  const pthread_t made_by;
  sigset_t mask_before{};
  std::array<struct sigaction, kStops.size()> actions_before{};
  std::mutex mutex;
  std::vector<StopListener::Entry*> entries;
  bool obeyed = false;
  std::atomic<bool> ending{false};
  pthread_t thread{};

  /// Signals belong to the process; so does their owner.
  static std::shared_ptr<SignalOwner> of_process(bool with_user) {
    static std::mutex making;
    static std::weak_ptr<SignalOwner> only;
    const std::lock_guard lock(making);
    std::shared_ptr<SignalOwner> owner = only.lock();
    if (!owner) only = owner = std::make_shared<SignalOwner>(with_user);
    return owner;
  }
};

Signals::Signals(bool with_user) : owner_(SignalOwner::of_process(with_user)) {}
Signals::~Signals() = default;

StopListener::StopListener(std::function<void(const std::string&, bool)> asked,
                           std::function<void()> insisted)
    : entry_(std::make_unique<Entry>(Entry{std::move(asked), std::move(insisted), false, std::nullopt})) {
  SignalOwner& owner = *signals_.owner_;
  const std::lock_guard lock(owner.mutex);
  owner.entries.push_back(entry_.get());
}

StopListener::~StopListener() {
  SignalOwner& owner = *signals_.owner_;
  const std::lock_guard lock(owner.mutex);
  std::erase(owner.entries, entry_.get());
}

void prepare() {
  open_standard_streams();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // ignored by a parent, it would hide how children end
  // The C library looks for the unwinder when it first needs it, and gives up the process if memory is gone
  // by then.
  void* frame = nullptr;
  ::backtrace(&frame, 1);
}

WithoutSignals::WithoutSignals() {
  const sigset_t others = all_but_faults();
  ::pthread_sigmask(SIG_SETMASK, &others, &before_);
}

WithoutSignals::~WithoutSignals() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace tenon::base
