// Looks every twentieth of the limit. Time counts by looks, so a process that was stopped for hours (SIGSTOP,
// a suspended machine) has not been late.
#include "loop/pass_watch.hpp"

#include "base/signals.hpp"
#include "plugin/call_watch.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace tenon::train {
namespace {

constexpr double kLooks = 20, kShortestSeconds = 0.002, kLongestSeconds = 0.5;
/// A late pass that ends within this many seconds leaves the end of the run to its ranks.
constexpr double kLostAfterSeconds = 1;
constexpr std::array<const char*, 4> kPasses = {"forward", "backward", "an evaluation's forward",
                                                "the update"};

}  // namespace

PassWatch::PassWatch(double seconds, std::function<bool()> failed, std::function<void(const LatePass&)> late,
                     std::function<void(const LatePass&)> lost)
    : limit_s_(seconds),
      every_s_(std::clamp(seconds / kLooks, kShortestSeconds, kLongestSeconds)),
      failed_(std::move(failed)),
      late_(std::move(late)),
      lost_(std::move(lost)) {
  const base::WithoutSignals none;
  thread_ = std::thread([this] { watch(); });
}

PassWatch::~PassWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void PassWatch::add(WatchedRank& rank) {
  const std::lock_guard lock(mutex_);
  ranks_.push_back(&rank);
}

void PassWatch::remove(WatchedRank& rank) {
  const std::lock_guard lock(mutex_);
  std::erase(ranks_, &rank);
}

bool PassWatch::expects_one() const {
  const std::lock_guard lock(mutex_);
  return call_left_s_ <= patience() ||
         std::any_of(ranks_.begin(), ranks_.end(),
                     [&](const WatchedRank* rank) { return rank->seconds_ + patience() >= limit_s_; });
}

void PassWatch::watch() {
  const std::chrono::duration<double> every(every_s_);
  std::unique_lock lock(mutex_);
  std::chrono::steady_clock::time_point before = std::chrono::steady_clock::now();
  while (!changed_.wait_for(lock, every, [this] { return ending_; })) {
    const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    look(std::min(std::chrono::duration<double>(now - before).count(), 2 * every_s_));
    before = now;
  }
}

void PassWatch::report(const LatePass& pass, bool told, double seconds) {
  if (!told) {
    late_(pass);
  } else if (seconds >= kLostAfterSeconds) {
    lost_(pass);
  }
}

bool PassWatch::look_at_calls(double seconds) {
  const auto call = plugin::longest_call(seconds, limit_s_, failed_());
  call_left_s_ = call ? call->limit - call->seconds : limit_s_;
  if (call_left_s_ > 0) {
    told_ = false;
    return false;
  }
  LatePass pass;
  for (WatchedRank* rank : ranks_) {
    if (rank->host_.rank() == call->context.rank) pass.host = &rank->host_;
  }
  pass.exit_status = static_cast<int>(ErrorKind::kPlugin);
  pass.over_s = -call_left_s_;
  pass.text = fmt::format(
      "{}: the call did not return within {:g} s ({}[run] deadline). Code of a plugin cannot be stopped from "
      "outside, so the run ends; if this call needs so long, raise run.deadline",
      guard_place(call->context), call->limit,
      call->context.patience > 1 ? fmt::format("{:g} times ", call->context.patience) : "");
  report(pass, std::exchange(told_, true), pass.over_s);
  return true;
}

/// Called under the lock, so that the rank of a reported pass stays.
void PassWatch::look(double seconds) {
  if (look_at_calls(seconds)) return;
  for (WatchedRank* rank : ranks_) {
    LatePass pass;
    rank->seconds_ = 0;
    rank->places_.look(seconds, [&](const std::string& what, graph::PassKind kind, double passed) {
      rank->seconds_ = passed;
      if (passed < limit_s_) return;
      pass.host = &rank->host_;
      pass.exit_status = static_cast<int>(ErrorKind::kRun);
      pass.over_s = passed - limit_s_;
      pass.text = fmt::format(
          "rank {} in slot {}, during {} of {}: the kernel did not return within {:g} s ([run] deadline); "
          "kernels: {}. Nothing can stop it from outside, so the run ends. Choose other kernels with "
          "device.kernels; if this layer needs so long, raise run.deadline",
          rank->host_.rank(), rank->host_.slot(), kPasses[static_cast<std::size_t>(kind)], what, limit_s_,
          rank->kernels_);
    });
    if (pass.host == nullptr) {
      rank->told_ = false;
    } else {
      report(pass, std::exchange(rank->told_, true), pass.over_s);
    }
  }
}

void WatchedRank::set_kernels(std::string kernels) {
  const std::lock_guard lock(watch_.mutex_);
  kernels_ = std::move(kernels);
}

}  // namespace tenon::train
