// Carrying out faults. Each comes once, at the first chance from its slot on.
#include "loop/faults.hpp"

#include "loop/compute_cost.hpp"
#include "plugin/guard.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

namespace tenon::train {
namespace {

using Fault = config::FaultSettings;

constexpr auto kHangNap = std::chrono::milliseconds(2);
/// A hanging rank that no other rank misses gives up after this many deadlines.
constexpr double kHangDeadlines = 3;

std::string_view phase_name(Fault::Phase phase) {
  switch (phase) {
    case Fault::Phase::kForward:
      return "in a forward";
    case Fault::Phase::kBackward:
      return "in a backward";
    case Fault::Phase::kCollective:
      return "in a collective";
    case Fault::Phase::kUpdate:
      return "before an update";
    case Fault::Phase::kSlot:
      break;
  }
  return "before a slot";
}

/// THE ONE PLACE where a rank dies. Alone in its process it is killed, as by a power cut; beside other ranks
/// it can only fail, with a text that names it.
[[noreturn]] void die(bool own_process, const std::string& text) {
  if (own_process) std::raise(SIGKILL);
  fail_run(text);
}

}  // namespace

Faults::Faults(const FaultSpec& spec) : spec_(spec) {
  for (const Fault& fault : *spec.faults) {
    if (fault.rank == spec.rank && fault.step >= spec.first_slot) waiting_.push_back(fault);
  }
  any_ = !waiting_.empty();
}

void Faults::happened_through(std::int64_t slot) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [slot](const Fault& fault) { return fault.step <= slot; });
}

void Faults::begin_slot(std::int64_t t) {
  if (!any_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard lock(mutex_);
    slot_ = t;
    for (const Fault& fault : waiting_) {
      if (fault.step <= t) armed_.push_back({fault, false});
    }
    std::erase_if(waiting_, [t](const Fault& fault) { return fault.step <= t; });
  }
  at(Fault::Phase::kSlot);
}

void Faults::at(Fault::Phase phase) {
  if (!any_.load(std::memory_order_relaxed)) return;
  std::optional<Fault> due;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(armed_.begin(), armed_.end(), [phase](const Armed& armed) {
      return armed.fault.phase == phase && armed.fault.kind != Fault::Kind::kLink &&
             armed.fault.kind != Fault::Kind::kFlip;
    });
    if (found == armed_.end()) return;
    due = found->fault;
    armed_.erase(found);
  }
  carry_out(*due, phase_name(phase));
}

void Faults::before_operation(std::span<const int> members, std::string_view operation) {
  if (!any_.load(std::memory_order_relaxed)) return;
  const OutsideCall injected;  // a component that communicates does not answer for it
  at(Fault::Phase::kCollective);
  double down_s = 0;
  {
    const std::lock_guard lock(mutex_);
    for (Armed& armed : armed_) {
      if (armed.fault.kind != Fault::Kind::kLink) continue;
      const auto peer = static_cast<int>(armed.fault.peer.value_or(-1));
      if (peer >= 0 && std::find(members.begin(), members.end(), peer) == members.end()) continue;
      if (armed.fault.seconds > 0) {
        down_s += std::exchange(armed.fault.seconds, -1);  // below zero: it is up again
        continue;
      }
      if (armed.fault.seconds < 0) continue;
      fail_run(fmt::format("rank {}: its link{} is down since slot {}, found at {} (injected by [[fault]])",
                           spec_.rank, peer >= 0 ? fmt::format(" to rank {}", peer) : "", armed.fault.step,
                           operation));
    }
  }
  spend(down_s, *spec_.clock, *spec_.control);
}

void Faults::carry_out(const Fault& fault, std::string_view where) {
  const auto text = [&](const char* what) {
    return fmt::format("rank {} {} in slot {}, {} (injected by [[fault]])", spec_.rank, what, slot_, where);
  };
  switch (fault.kind) {
    case Fault::Kind::kCrash:
      die(spec_.own_process, text("died"));
    case Fault::Kind::kHang:
      if (fault.seconds > 0) return spend(fault.seconds, *spec_.clock, *spec_.control);
      return hang(text("hung"));
    case Fault::Kind::kSlow:
      return spend(fault.seconds, *spec_.clock, *spec_.control);
    case Fault::Kind::kLink:
    case Fault::Kind::kFlip:
      return;  // at its next operation; where its tensor is
  }
}

std::vector<Fault> Faults::all_flips() const {
  std::vector<Fault> flips;
  const std::lock_guard lock(mutex_);
  for (const Fault& fault : waiting_) {
    if (fault.kind == Fault::Kind::kFlip) flips.push_back(fault);
  }
  return flips;
}

bool Faults::flips(Fault::What what) const {
  if (!any_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(armed_, [what](const Armed& armed) {
    return armed.fault.kind == Fault::Kind::kFlip && armed.fault.what == what;
  });
}

std::optional<Fault> Faults::take_flip(Fault::What what, std::string_view tensor) {
  if (!any_.load(std::memory_order_relaxed)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(armed_, [&](const Armed& armed) {
    return armed.fault.kind == Fault::Kind::kFlip && armed.fault.what == what &&
           (tensor.empty() || armed.fault.tensor == tensor);
  });
  if (found == armed_.end()) return std::nullopt;
  Fault due = found->fault;
  armed_.erase(found);
  return due;
}

// In virtual time the rank is too late for all others and finds that out itself; in real time it sleeps until
// the run is cancelled.
void Faults::hang(const std::string& text) {
  Clock& clock = *spec_.clock;
  if (clock.simulated()) {
    clock.advance(kHangDeadlines * spec_.deadline_s);
  } else {
    const double end = clock.now() + kHangDeadlines * spec_.deadline_s;
    while (!spec_.control->failed() && clock.now() < end) std::this_thread::sleep_for(kHangNap);
    if (!spec_.control->failed())
      throw DeadlineError(
          fmt::format("{}; no rank noticed it for {:g} s", text, kHangDeadlines * spec_.deadline_s));
  }
  if (spec_.control->failed()) throw CancelledError(spec_.control->failure());
}

}  // namespace tenon::train
