// The log is the one user of spdlog. Its registry of global loggers stays unused: a log belongs to its rank.
// Background actors: a guarded thread that takes part in the clock and in pauses, and whose failure fails the
// run.
#include "loop/rank_host.hpp"

#include "plugin/guard.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>

#include <pthread.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

namespace tenon {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

LogLevel log_level_from_environment() {
  const char* value = std::getenv("TENON_LOG");
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "info") return LogLevel::kInfo;
  if (text == "debug") return LogLevel::kDebug;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  fail_config("TENON_LOG: expected debug, info, warning or error, found '" + std::string(text) + "'");
}

struct RankLog::Impl {
  Impl(const std::string& path, int rank_number)
      : logger("tenon", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path)), rank(rank_number) {}

  spdlog::logger logger;
  int rank;
};

RankLog::RankLog(const std::string& folder, int rank, LogLevel level) {
  const std::string path = folder + "/log.rank" + std::to_string(rank) + ".txt";
  try {
    impl_ = std::make_unique<Impl>(path, rank);
  } catch (const spdlog::spdlog_ex& error) {
    fail_run("cannot open the log " + path + ": " + error.what());
  }
  impl_->logger.set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
  impl_->logger.set_level(spdlog_level(level));
  impl_->logger.flush_on(spdlog::level::warn);
}

RankLog::~RankLog() {
  flush();
}

bool RankLog::enabled(LogLevel level) const {
  return impl_->logger.should_log(spdlog_level(level));
}

void RankLog::write(LogLevel level, std::string_view component, std::int64_t step, std::string_view message) {
  if (!enabled(level)) return;
  std::string text = "rank " + std::to_string(impl_->rank);
  if (step >= 0) text += " step " + std::to_string(step);
  text += " [";
  text += component;
  text += "] ";
  for (const char c : message) {
    text += c;
    if (c == '\n') text += "    ";
  }
  impl_->logger.log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
}

void RankLog::flush() {
  impl_->logger.flush();
}

}  // namespace tenon

namespace tenon::train {
namespace {

constexpr std::size_t kThreadNameLength = 15;  // of Linux: what `top -H` shows

class ThreadActor final : public Actor {
 public:
  ThreadActor(std::string name, int id, RankHost& host, PauseGate& gate, std::function<void(Actor&)> loop)
      : name_(std::move(name)),
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
    Clock& clock = *host_.spec().clock;
    if (clock.simulated()) {
      clock.advance(seconds);
      return;
    }
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return stopping(); });
  }

  void stop() override {
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
      guard({"", name_, host_.rank(), host_.slot()}, [&] { loop_(*this); });
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

  std::string name_;
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
