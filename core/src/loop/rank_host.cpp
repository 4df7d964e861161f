// Background actors: a guarded thread that takes part in the clock and in pauses, and whose failure fails the
// run.
#include "loop/rank_host.hpp"
#include "plugin/guard.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <pthread.h>

#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>

namespace tenon::train {
namespace {

constexpr std::size_t kThreadNameLength = 15;  // of Linux: what `top -H` shows

class ThreadActor final : public Actor {
 public:
  ThreadActor(std::string name, int id, RankHost& host, PauseGate& gate, std::function<void(Actor&)> loop)
      : name_(std::move(name)),
        plugin_(spawner() == nullptr ? "" : spawner()->plugin),
        component_(plugin_.empty() ? name_ : fmt::format("{}, actor '{}'", spawner()->component, name_)),
        participant_(id),
        host_(host),
        gate_(gate),
        loop_(std::move(loop)),
        thread_([this] { run(); }) {}

  ~ThreadActor() override {
    try {
      stop();
    } catch (const std::exception& error) {
      host_.log(LogLevel::kError, fmt::format("actor '{}': {}", name_, error.what()));
    }
  }

  bool stopping() const override {
    return stop_.load(std::memory_order_acquire) || host_.spec().control->failed();
  }

  bool checkpoint() override {
    gate_.boundary();
    return !stopping();
  }

  void sleep(double seconds) override {
    const OutsideCall waits;
    Clock& clock = *host_.spec().clock;
    if (clock.simulated()) {
      clock.advance(seconds);
      return;
    }
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return stopping(); });
  }

  void stop() override {
    const OutsideCall waits;
    {
      const std::lock_guard lock(mutex_);
      stop_.store(true, std::memory_order_release);
    }
    woken_.notify_all();
    Clock& clock = *host_.spec().clock;
    std::unique_lock lock(mutex_);
    const WaitDeadline deadline(host_.deadline());
    while (!ended_) {
      if (ended_event_.wait(lock, clock, deadline, "the end of actor '" + name_ + "'") ==
          ClockEvent::Outcome::kLate) {
        // The thread cannot be abandoned: it refers to this rank. Name the actor and keep waiting for it.
        host_.log(LogLevel::kError,
                  fmt::format("actor '{}' did not end within {} s of the request", name_, host_.deadline()));
        break;
      }
    }
    lock.unlock();
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void run() {
    Clock& clock = *host_.spec().clock;
    bool inside = false;
    ::pthread_setname_np(::pthread_self(), name_.substr(0, kThreadNameLength).c_str());
    try {
      clock.enter(participant_);
      gate_.enter();
      inside = true;
      guard({plugin_, component_, host_.rank(), host_.slot(), nullptr, 0}, [&] {
        try {
          loop_(*this);
        } catch (...) {
          rethrow_noted_call();
        }
      });
    } catch (const CancelledError&) {
      // Another rank or thread failed first and is reported.
    } catch (const Error& error) {
      failure_ = std::current_exception();
      host_.spec().control->fail(host_.rank(), error.exit_status(), error.what());
    } catch (const std::exception& error) {
      failure_ = std::current_exception();
      host_.spec().control->fail(host_.rank(), 1, error.what());
    }
    if (inside) gate_.leave();
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      ended_event_.notify(clock, clock.now());
    }
    clock.leave();
  }

  /// The call of the plugin that asked for the actor; null where the core did.
  static const GuardContext* spawner() { return current_plugin_call(); }

  std::string name_, plugin_, component_;
  int participant_;
  RankHost& host_;
  PauseGate& gate_;
  std::function<void(Actor&)> loop_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable woken_;
  ClockEvent ended_event_;
  bool ended_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

void RankHost::log(LogLevel level, std::string_view message) {
  const GuardContext* call = current_plugin_call();
  const std::string_view component = call == nullptr ? std::string_view("core") : call->component;
  {
    const std::lock_guard lock(early_mutex_);
    if (spec_.log != nullptr) {
      spec_.log->write(level, component, slot(), message);
      return;
    }
    early_.push_back({level, std::string(component), std::string(message)});
  }
  if (level >= LogLevel::kWarning) {
    std::fprintf(stderr, "%.*s: %.*s\n", static_cast<int>(component.size()), component.data(),
                 static_cast<int>(message.size()), message.data());
  }
}

void RankHost::set_log(RankLog* log) {
  const std::lock_guard lock(early_mutex_);
  spec_.log = log;
  for (const EarlyMessage& message : early_) log->write(message.level, message.component, -1, message.text);
  early_.clear();
}

std::unique_ptr<Actor> RankHost::spawn(std::string_view name, std::function<void(Actor&)> loop) {
  const int number = actors_.fetch_add(1) + 1000;  // after all workers in the order of ties
  const int id = spec_.clock->announce(spec_.replica, number, name);
  return std::make_unique<ThreadActor>(std::string(name), id, *this, gate_, std::move(loop));
}

}  // namespace tenon::train
