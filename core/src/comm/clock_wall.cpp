// The wall clock: steady time since its construction, and the ids of participants.
#include "base/elapsed.hpp"

#include <tenon/clock.hpp>

#include <tenon/error.hpp>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

namespace {

class WallClock final : public Clock {
 public:
  bool simulated() const override { return false; }

  double now() const override { return base::seconds_since(begin_); }

  void advance(double) override {}

  int announce(int, int, std::string_view) override {
    const std::lock_guard lock(mutex_);
    return announced_++;
  }

  void enter(int id) override {
    const std::lock_guard lock(mutex_);
    if (id < 0 || id >= announced_) {
      fail_run("wall clock: participant " + std::to_string(id) + " enters but was never announced");
    }
    inside_.emplace_back(std::this_thread::get_id(), id);
  }

  void leave() override {
    const std::lock_guard lock(mutex_);
    std::erase_if(inside_, [](const auto& entry) { return entry.first == std::this_thread::get_id(); });
  }

  void park(std::string_view waiting_for) override {
    fail_run("wall clock: park('" + std::string(waiting_for) + "') is only for the simulated clock");
  }
  void wake(int, double) override { fail_run("wall clock: wake is only for the simulated clock"); }

  int current() const override {
    const std::lock_guard lock(mutex_);
    for (const auto& [thread, id] : inside_) {
      if (thread == std::this_thread::get_id()) return id;
    }
    return -1;
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  int announced_ = 0;
  std::vector<std::pair<std::thread::id, int>> inside_;
};

}  // namespace

std::unique_ptr<Clock> make_wall_clock() {
  return std::make_unique<WallClock>();
}

TENON_ABI_END
