// Checks of contract power/1: a component has a role; a policy balances its energy, depends on its inputs
// alone, leaves the load alone where it says so, carries its state, and allocates nothing for a sample; a
// source has a sensor or says why not, and gives sound values without a long wait; an actuator returns from
// every call, counts in finite numbers, and rests after stop().
#include "allocation_watch.hpp"
#include "memory_state.hpp"
#include "subject.hpp"

#include <tenon/error.hpp>
#include <tenon/phases.hpp>
#include <tenon/power.hpp>
#include <tenon/random.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <iterator>
#include <thread>
#include <vector>

namespace tenon::conformance {
namespace {

constexpr std::size_t kPowerSamples = 6000, kJobEnd = 5000;
constexpr const char* kPowerRoles[] = {PowerPolicy::kId, PowerSource::kId, PowerActuator::kId};
const PowerSetup kPowerPlaces[] = {{1e-3, 700, 1}, {5e-3, 7.7e5, 1000}};

struct MadePolicyRole {
  testing::Made<Power> component;
  PowerPolicy* policy = nullptr;
};

/// Throws NotApplicable for components of other roles.
MadePolicyRole make_role(Subject& subject) {
  MadePolicyRole made{subject.make<Power>(), nullptr};
  made.policy = static_cast<PowerPolicy*>(made.component->query(PowerPolicy::kId));
  if (made.policy == nullptr) not_applicable("the component is no policy");
  return made;
}

/// A job of steps with noise, then idle time.
std::vector<PowerSample> power_job(std::uint64_t seed, double rated_watts) {
  const RandomKey key = random_key(seed, "conformance.power");
  std::vector<PowerSample> samples;
  for (std::size_t i = 0; i < kPowerSamples; ++i) {
    const bool ended = i >= kJobEnd, busy = !ended && i % 400 < 310;
    const double share = (busy ? 0.9 : 0.25) + 0.05 * random_normal(key, i, 0);
    samples.push_back({rated_watts * std::max(0.0, share), busy ? 1.0 : 0.0, ended});
  }
  return samples;
}

void same_outputs(const PowerOutput& a, const PowerOutput& b, const std::string& what) {
  const double of_a[] = {a.watts, a.burnt, a.withheld, a.stored, a.charge_j, a.work};
  const double of_b[] = {b.watts, b.burnt, b.withheld, b.stored, b.charge_j, b.work};
  if (std::memcmp(of_a, of_b, sizeof of_a) != 0 || a.violation != b.violation)
    fail(fmt::format("{}: {} W and {} W", what, a.watts, b.watts));
}

void power_has_a_role(Subject& subject) {
  const testing::Made<Power> made = subject.make<Power>();
  if (made->query("tenon.no.such.role/1") != nullptr)
    fail("query() answers an id that nothing has; return null for roles that the component does not take");
  bool has_role = false;
  for (const char* const role : kPowerRoles) {
    void* const first = made->query(role);
    if (made->query(role) != first) fail("query() answers the same id by another object");
    has_role = has_role || first != nullptr;
  }
  if (!has_role) fail(fmt::format("query() knows no role; this kit knows {}", fmt::join(kPowerRoles, ", ")));
}

void power_balances(Subject& subject) {
  const MadePolicyRole made = make_role(subject);
  for (const PowerSetup& place : kPowerPlaces) {
    made.policy->start(place);
    std::size_t i = 0;
    for (const PowerSample& sample : power_job(subject.seed(), place.rated_watts)) {
      const PowerOutput out = made.policy->step(sample);
      const std::string where = fmt::format("sample {} of {} W", i++, sample.watts);
      for (const double value : {out.watts, out.burnt, out.withheld, out.stored, out.charge_j, out.work})
        if (!std::isfinite(value)) fail(where + ": an output is not finite");
      if (out.burnt < 0 || out.withheld < 0 || out.charge_j < 0)
        fail(fmt::format("{}: burnt {}, withheld {}, charge {}: none may be negative", where, out.burnt,
                         out.withheld, out.charge_j));
      if (out.work < 0 || out.work > 1)
        fail(fmt::format("{}: work is {}, expected from 0 to 1", where, out.work));
      if (out.withheld > 0 && out.work == 1)
        fail(fmt::format("{}: {} W are withheld, and all work is done", where, out.withheld));
      const double expected = sample.watts + out.burnt - out.withheld + out.stored;
      if (std::abs(out.watts - expected) > 1e-9 * place.rated_watts)
        fail(fmt::format("{}: {} W go out, and load + burnt - withheld + stored is {} W", where, out.watts,
                         expected));
    }
  }
}

void neutral_policy_is_identity(Subject& subject) {
  const MadePolicyRole made = make_role(subject);
  if (!made.policy->neutral())
    not_applicable("its options are not neutral; a case of conformance.toml may have such");
  for (const PowerSetup& place : kPowerPlaces) {
    made.policy->start(place);
    for (const PowerSample& sample : power_job(subject.seed(), place.rated_watts)) {
      const PowerOutput out = made.policy->step(sample);
      if (std::memcmp(&out.watts, &sample.watts, sizeof(double)) != 0 || out.work != 1)
        fail(fmt::format("neutral() is true, and {} W became {} W", sample.watts, out.watts));
    }
  }
}

void policy_is_pure(Subject& subject) {
  const MadePolicyRole made = make_role(subject), again = make_role(subject);
  for (const PowerSetup& place : kPowerPlaces) {
    const std::vector<PowerSample> samples = power_job(subject.seed(), place.rated_watts);
    std::vector<PowerOutput> expected;
    made.policy->start(place);
    for (const PowerSample& sample : samples) expected.push_back(made.policy->step(sample));
    for (PowerPolicy* policy : {made.policy, again.policy}) {
      // A past that shows where it is remembered: higher than the job begins.
      for (int i = 0; policy == made.policy && i < 500; ++i) policy->step({2 * place.rated_watts, 1, false});
      policy->start(place);
      for (std::size_t i = 0; i < samples.size(); ++i)
        same_outputs(policy->step(samples[i]), expected[i],
                     fmt::format("after start() sample {} gave other bits {}", i,
                                 policy == made.policy ? "than the first time" : "in a second object"));
    }
  }
}

void policy_carries_its_state(Subject& subject) {
  const MadePolicyRole made = make_role(subject), again = make_role(subject);
  const PowerSetup& place = kPowerPlaces[0];
  const std::vector<PowerSample> samples = power_job(subject.seed(), place.rated_watts);
  for (const std::size_t at :
       {std::size_t{1}, std::size_t{310}, std::size_t{355}, std::size_t{1777}, kJobEnd + 3}) {
    made.policy->start(place);
    for (std::size_t i = 0; i < at; ++i) made.policy->step(samples[i]);
    MemoryState state(subject.device());
    made.policy->state(state);
    state.load();
    again.policy->start(place);
    again.policy->state(state);
    for (std::size_t i = at; i < samples.size(); ++i)
      same_outputs(again.policy->step(samples[i]), made.policy->step(samples[i]),
                   fmt::format("restored after {} samples, sample {} gave other bits", at, i));
  }
}

void policy_allocates_no_sample(Subject& subject) {
  const AllocationWatch* const watch = allocation_watch();
  if (watch == nullptr) not_applicable("allocations cannot be counted in a build with a sanitizer");
  const MadePolicyRole made = make_role(subject);
  const std::vector<PowerSample> samples = power_job(subject.seed(), kPowerPlaces[0].rated_watts);
  made.policy->start(kPowerPlaces[0]);
  watch->open();
  for (const PowerSample& sample : samples) made.policy->step(sample);
  watch->close();
  const std::string stack = first_allocation_from(*watch, subject.file().string());
  if (!stack.empty()) fail("step() asks the heap for memory; prepare it in start(). First of them:" + stack);
}

struct MadeSourceRole {
  testing::Made<Power> component;
  PowerSource* source = nullptr;
};

MadeSourceRole make_source(Subject& subject) {
  MadeSourceRole made{subject.make<Power>(), nullptr};
  made.source = static_cast<PowerSource*>(made.component->query(PowerSource::kId));
  if (made.source == nullptr) not_applicable("the component is no source");
  return made;
}

/// Opens it, or throws NotApplicable with its reason: another check holds that against its promise.
PowerSourceInfo open_source(PowerSource& source) {
  try {
    return source.open(0);
  } catch (const Error& error) {
    not_applicable(fmt::format("this machine has no sensor for it: {}", error.what()));
  }
}

void source_opens_or_says_why(Subject& subject) {
  const MadeSourceRole made = make_source(subject);
  PowerSourceInfo info;
  try {
    info = made.source->open(0);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kRun)
      fail(
          fmt::format("open() threw an error that is no Error(kRun), after which the run would not go on: {}",
                      error.what()));
    if (std::string_view(error.what()).empty()) fail("open() threw Error(kRun) without a reason");
    return;
  }
  if (info.sensor.empty()) fail("open() gave info without a sensor; name what is read");
  if (!std::isfinite(info.rated) || info.rated < 0)
    fail(fmt::format("rated is {}; expected 0 where it is unknown, else the most that is drawn", info.rated));
  if (info.unit == PowerUnit::kShare && info.rated > 1)
    fail(fmt::format("rated is {}, and the unit is a share; expected at most 1", info.rated));
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void source_reads_are_sound(Subject& subject) {
  constexpr int kInSuccession = 100, kApart = 20;
  const MadeSourceRole made = make_source(subject);
  const PowerSourceInfo info = open_source(*made.source);
  auto* const hears = static_cast<PhaseObserver*>(made.component->query(PhaseObserver::kId));
  const double begin = seconds_now();
  double joules = 0;
  for (int i = 0; i <= kInSuccession + kApart; ++i) {
    if (i > kInSuccession) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const double now_s = i == 0 ? 0 : seconds_now() - begin;
    if (hears != nullptr) hears->on_phase(static_cast<Phase>(static_cast<std::size_t>(i) % kPhases), now_s);
    const double value = made.source->read(now_s);
    if (std::isinf(value) || value < 0)
      fail(fmt::format("read {} gave {}; expected NaN, or a finite number that is not negative", i, value));
    if (info.unit == PowerUnit::kShare && value > 1)
      fail(fmt::format("read {} gave {}, and the unit is a share; expected at most 1", i, value));
    const double counted = made.source->joules();
    if (std::isnan(counted)) continue;
    if (std::isinf(counted) || counted < joules)
      fail(fmt::format("joules() went from {} to {}; expected a finite number that never falls", joules,
                       counted));
    joules = counted;
  }
}

void source_answers_in_time(Subject& subject) {
  constexpr double kOpenS = 10, kCallS = 1;
  const MadeSourceRole made = make_source(subject);
  const auto in_time = [](const char* call, double limit_s, auto&& body) {
    const double begin = seconds_now();
    body();
    const double took_s = seconds_now() - begin;
    if (took_s > limit_s)
      fail(fmt::format(
          "{} took {:.2f} s; expected at most {:g} s, since the run ends a source that it waits for", call,
          took_s, limit_s));
  };
  in_time("open()", kOpenS, [&] { open_source(*made.source); });
  for (int i = 1; i <= 10; ++i) {
    in_time("read()", kCallS, [&] { made.source->read(1e-3 * i); });
    in_time("joules()", kCallS, [&] { made.source->joules(); });
  }
}

double process_cpu_seconds() {
  std::timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Calls, and fails where it took longer than an actuator may keep the training thread.
template <typename Call>
void in_time(const char* what, double seconds, const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (took > seconds)
    fail(fmt::format("{} took {:.3g} s, and may take {:g} s at most, since training waits for it", what, took,
                     seconds));
}

/// Nothing of the actuator works now. Threads of this process that end need a moment.
void rests_after_stop() {
  constexpr double kWindow = 0.2,
                   kMost = 0.02;  // seconds; a thread that works takes a whole window, or a share
  double least = kWindow;
  for (int i = 0; i < 5 && least > kMost; ++i) {
    const double before = process_cpu_seconds();
    std::this_thread::sleep_for(std::chrono::duration<double>(kWindow));
    least = std::min(least, process_cpu_seconds() - before);
  }
  if (least > kMost)
    fail(fmt::format("after stop() the process uses {:.3g} s of CPU time in {} s of sleep; expected none",
                     least, kWindow));
}

void actuator_starts_and_stops(Subject& subject) {
  constexpr double kStart = 10, kStop = 10, kPhases = 5;
  constexpr std::uint64_t kChanges = 3000;
  const testing::Made<Power> made = subject.make<Power>();
  auto* const actuator = static_cast<PowerActuator*>(made->query(PowerActuator::kId));
  if (actuator == nullptr) not_applicable("the component is no actuator");
  auto* const hears = static_cast<PhaseObserver*>(made->query(PhaseObserver::kId));
  PowerPlace place;
  place.threads = 2;
  place.device = &subject.device();
  place.host = &subject.host();
  const RandomKey key = random_key(subject.seed(), "conformance.phases");
  actuator->prepare(place);
  for (int turn = 0; turn < 2; ++turn) {
    in_time("start()", kStart, [&] { actuator->start(place); });
    in_time("3,000 calls of on_phase()", kPhases, [&] {
      for (std::uint64_t i = 0; hears != nullptr && i < kChanges; ++i) {
        const auto phase = static_cast<Phase>(random_below(key, i, 0, tenon::kPhases));
        hears->on_phase(phase, 1e-3 * static_cast<double>(i));
        if (i % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
    std::size_t facts = 0;
    actuator->account([&](std::string_view name, double value) {
      ++facts;
      if (name.empty()) fail("account() has a fact without a name");
      if (!std::isfinite(value) || value < 0)
        fail(
            fmt::format("account(): '{}' is {}; expected a finite number that is not negative", name, value));
    });
    if (facts == 0) fail("account() tells nothing");
    in_time("stop()", kStop, [&] { actuator->stop(); });
    rests_after_stop();
    in_time("the second stop()", kStop, [&] { actuator->stop(); });
  }
  actuator->start(place);  // and its destructor ends it
}

constexpr const char* kPowerKind = Power::kKind;
constexpr Check kPowerChecks[] = {
    {"power.has_a_role", kPowerKind, "query() answers the id of a role, and null for others",
     power_has_a_role},
    {"power.balances_energy", kPowerKind, "what goes out is load + burnt - withheld + stored in every sample",
     power_balances},
    {"power.neutral_is_identity", kPowerKind, "a policy that calls itself neutral keeps the load to the bit",
     neutral_policy_is_identity},
    {"power.is_pure", kPowerKind, "start() forgets everything; equal samples give equal bits in any object",
     policy_is_pure},
    {"power.carries_its_state", kPowerKind, "state() holds all that later samples depend on",
     policy_carries_its_state},
    {"power.allocates_no_sample", kPowerKind, "step() takes nothing from the heap",
     policy_allocates_no_sample, 20, true},
    {"power.opens_or_says_why", kPowerKind,
     "a source gives info with a sensor, or throws Error(kRun) with a reason", source_opens_or_says_why},
    {"power.reads_are_sound", kPowerKind,
     "values are NaN, or finite and not negative, shares at most 1, and joules never fall",
     source_reads_are_sound},
    {"power.answers_in_time", kPowerKind, "open() takes at most 10 s, read() and joules() 1 s",
     source_answers_in_time, 30},
    {"power.actuator_stops", kPowerKind,
     "an actuator starts, hears phases in any order and stops in bounded time; nothing works after stop()",
     actuator_starts_and_stops, 60},
};

}  // namespace

std::span<const Check> power_checks() {
  return kPowerChecks;
}

}  // namespace tenon::conformance
