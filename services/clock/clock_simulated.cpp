// The simulated clock: a baton goes to the runnable participant with the smallest (time, replica, actor), and
// only its holder runs. What participants do between two calls of the clock is therefore one serial,
// repeatable history.
#include <tenon/clock.hpp>

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

namespace {

using Steady = std::chrono::steady_clock;
constexpr int kNobody = -1;

enum class Presence { kReady, kParked, kLeft };

struct Participant {
  int id = 0;
  int replica = 0;
  int actor = 0;
  std::string name;
  double time = 0;
  Presence phase = Presence::kReady;
  bool entered = false;
  bool permit = false;  // a wake that came before its park
  double permit_at = 0;
  std::string waiting_for;
  std::condition_variable baton;

  auto order() const { return std::make_tuple(time, replica, actor, id); }
  std::string text() const { return fmt::format("'{}' (replica {}, actor {})", name, replica, actor); }
};

class SimulatedClock final : public Clock {
 public:
  explicit SimulatedClock(double deadline_wall_s)
      : deadline_s_(deadline_wall_s),
        deadline_(
            std::chrono::duration_cast<Steady::duration>(std::chrono::duration<double>(deadline_wall_s))) {}

  bool simulated() const override { return true; }

  // A thread outside sees the latest time that any participant has reached.
  double now() const override {
    const std::lock_guard lock(mutex_);
    const int id = find_self();
    return id == kNobody ? front_ : at(id).time;
  }

  void advance(double seconds) override {
    std::unique_lock lock(mutex_);
    Participant& self = require_self("advance");
    if (!(seconds >= 0)) {
      fail_run(fmt::format("simulated clock: {} advances by {} s; time only grows", self.text(), seconds));
    }
    throw_if_stopped();
    self.time += seconds;
    yield(lock, self);
  }

  int announce(int replica, int actor, std::string_view name) override {
    const std::lock_guard lock(mutex_);
    const int announcer = find_self();
    Participant& fresh = participants_.emplace_back();
    fresh.id = static_cast<int>(participants_.size()) - 1;
    fresh.replica = replica;
    fresh.actor = actor;
    fresh.name = name;
    fresh.time = announcer == kNobody ? front_ : at(announcer).time;
    return fresh.id;
  }

  void enter(int id) override {
    std::unique_lock lock(mutex_);
    if (id < 0 || id >= static_cast<int>(participants_.size()) || at(id).entered) {
      fail_run(fmt::format("simulated clock: participant {} enters twice or was never announced", id));
    }
    if (find_self() != kNobody) fail_run("simulated clock: this thread is a participant already");
    Participant& self = at(id);
    self.entered = true;
    inside_.emplace_back(std::this_thread::get_id(), id);
    if (holder_ == kNobody) pass_baton();
    wait_for_baton(lock, self);
  }

  void leave() override {
    const std::lock_guard lock(mutex_);
    const int id = find_self();
    if (id == kNobody) return;
    at(id).phase = Presence::kLeft;
    std::erase_if(inside_, [](const auto& entry) { return entry.first == std::this_thread::get_id(); });
    if (holder_ == id) {
      holder_ = kNobody;
      pass_baton();
    }
  }

  void park(std::string_view waiting_for) override {
    std::unique_lock lock(mutex_);
    Participant& self = require_self("park");
    throw_if_stopped();
    if (self.permit) {
      self.permit = false;
      self.time = std::max(self.time, std::exchange(self.permit_at, 0.0));
      yield(lock, self);
      return;
    }
    self.waiting_for.assign(waiting_for);
    self.phase = Presence::kParked;
    holder_ = kNobody;
    pass_baton();
    wait_for_baton(lock, self);
  }

  void wake(int id, double time) override {
    const std::lock_guard lock(mutex_);
    if (id < 0 || id >= static_cast<int>(participants_.size())) {
      fail_run(fmt::format("simulated clock: wake of participant {}, which was never announced", id));
    }
    Participant& target = at(id);
    if (target.phase == Presence::kParked) {
      target.phase = Presence::kReady;
      target.time = std::max(target.time, time);
    } else if (target.phase == Presence::kReady) {
      target.permit = true;
      target.permit_at = std::max(target.permit_at, time);
    }
  }

  int current() const override {
    const std::lock_guard lock(mutex_);
    return find_self();
  }

 private:
  Participant& at(int id) { return participants_[id]; }
  const Participant& at(int id) const { return participants_[id]; }

  int find_self() const {
    for (const auto& [thread, id] : inside_) {
      if (thread == std::this_thread::get_id()) return id;
    }
    return kNobody;
  }

  Participant& require_self(std::string_view call) {
    const int id = find_self();
    if (id == kNobody) {
      fail_run(
          fmt::format("simulated clock: {} by a thread that never entered; announce and enter it", call));
    }
    return at(id);
  }

  void throw_if_stopped() const {
    if (!stopped_.empty()) throw DeadlineError(stopped_);
  }

  // The holder stays at its place in time: it keeps the baton unless another comes first.
  void yield(std::unique_lock<std::mutex>& lock, Participant& self) {
    holder_ = kNobody;
    pass_baton();
    wait_for_baton(lock, self);
  }

  void pass_baton() {
    if (!stopped_.empty()) return;
    Participant* first = nullptr;
    bool anyone_parked = false;
    for (Participant& p : participants_) {
      if (p.phase == Presence::kReady && (!first || p.order() < first->order())) first = &p;
      anyone_parked = anyone_parked || p.phase == Presence::kParked;
    }
    if (first) {
      holder_ = first->id;
      front_ = std::max(front_, first->time);
      progress_ = Steady::now();
      first->baton.notify_one();
    } else if (anyone_parked) {
      stop("simulated clock: deadlock, nobody can run any more");
    }
  }

  // Waits on real time only for as long as the holder makes no call: a long run of many short turns is no
  // failure.
  void wait_for_baton(std::unique_lock<std::mutex>& lock, Participant& self) {
    while (holder_ != self.id) {
      throw_if_stopped();
      self.baton.wait_until(lock, progress_ + deadline_);
      if (holder_ == self.id || !stopped_.empty() || Steady::now() < progress_ + deadline_) continue;
      const Participant* late = holder_ == kNobody ? nullptr : &at(holder_);
      stop(
          fmt::format("simulated clock: {} {} for {:g} s of real time", late ? late->text() : "nobody",
                      late && !late->entered ? "was announced but has not entered" : "did not call the clock",
                      deadline_s_));
    }
    front_ = std::max(front_, self.time);
  }

  void stop(std::string reason) {
    for (const Participant& p : participants_) {
      if (p.phase != Presence::kParked) continue;
      fmt::format_to(std::back_inserter(reason), "; {} waits since {:.9g} s for {}", p.text(), p.time,
                     p.waiting_for);
    }
    stopped_ = std::move(reason);
    for (Participant& p : participants_) p.baton.notify_all();
  }

  const double deadline_s_;
  const Steady::duration deadline_;
  mutable std::mutex mutex_;
  std::deque<Participant> participants_;  // a deque: waiting threads hold references
  std::vector<std::pair<std::thread::id, int>> inside_;
  int holder_ = kNobody;
  double front_ = 0;
  Steady::time_point progress_ = Steady::now();
  std::string stopped_;  // why the clock stopped; empty while it runs
};

}  // namespace

std::unique_ptr<Clock> make_simulated_clock(double deadline_wall_s) {
  if (!(deadline_wall_s > 0 && deadline_wall_s < 1e9)) {
    fail_config(fmt::format("simulated clock: deadline is {} s, expected more than 0 and below 1e9",
                            deadline_wall_s));
  }
  return std::make_unique<SimulatedClock>(deadline_wall_s);
}

TENON_ABI_END
