// sigtimedwait in a loop of short waits: no handler, so no global state and nothing that is unsafe in one.
#include "train/signals.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

namespace tenon::train {

struct SignalWatcher::Impl {
  sigset_t watched{};
  sigset_t before{};
  std::atomic<bool> ending{false};
  std::function<void(const std::string&)> asked;
  std::thread thread;

  void run() {
    bool first = true;
    const timespec wait{0, 100'000'000};
    while (!ending.load()) {
      const int signal = ::sigtimedwait(&watched, nullptr, &wait);
      if (signal < 0) continue;
      if (!first) ::_exit(128 + signal);
      first = false;
      asked(signal == SIGINT ? "SIGINT" : "SIGTERM");
    }
  }
};

SignalWatcher::SignalWatcher(std::function<void(const std::string&)> asked)
    : impl_(std::make_unique<Impl>()) {
  impl_->asked = std::move(asked);
  ::sigemptyset(&impl_->watched);
  ::sigaddset(&impl_->watched, SIGINT);
  ::sigaddset(&impl_->watched, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &impl_->watched, &impl_->before);
  impl_->thread = std::thread([this] { impl_->run(); });
}

SignalWatcher::~SignalWatcher() {
  impl_->ending.store(true);
  impl_->thread.join();
  // One that came after the last look would end the process when it is unblocked, behind a run that ended
  // well.
  const timespec at_once{0, 0};
  while (::sigtimedwait(&impl_->watched, nullptr, &at_once) > 0) continue;
  ::pthread_sigmask(SIG_SETMASK, &impl_->before, nullptr);
}

}  // namespace tenon::train
