// Checks of contract power/1: a component has a role; a policy balances its energy, depends on its inputs
// alone, leaves the load alone where it says so, carries its state, and allocates nothing for a sample.
#include "allocation_watch.hpp"
#include "memory_state.hpp"
#include "subject.hpp"

#include <tenon/error.hpp>
#include <tenon/power.hpp>
#include <tenon/random.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace tenon::conformance {
namespace {

constexpr std::size_t kPowerSamples = 6000, kJobEnd = 5000;
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
  void* const first = made->query(PowerPolicy::kId);
  if (first == nullptr) fail(fmt::format("query() knows no role; this kit knows {}", PowerPolicy::kId));
  if (made->query(PowerPolicy::kId) != first) fail("query() answers the same id by another object");
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
};

}  // namespace

std::span<const Check> power_checks() {
  return kPowerChecks;
}

}  // namespace tenon::conformance
