// From phases to readings; see simulation.hpp.
#include "power/simulation.hpp"

#include "base/elapsed.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::power {
namespace {

double joules_of(const Trace& trace) {
  return mean_of(trace.watts) * static_cast<double>(trace.watts.size()) / trace.rate_hz;
}

/// The job after its beginning.
Trace settled(const Load& load, const Plan& plan) {
  const auto skipped = static_cast<std::size_t>(plan.settle_s * plan.rate_hz);
  const std::size_t end = std::min(load.job_end, load.size()),
                    begin = std::min(load.job_begin + skipped, end);
  return {load.rate_hz,
          {load.watts.begin() + static_cast<std::ptrdiff_t>(begin),
           load.watts.begin() + static_cast<std::ptrdiff_t>(end)}};
}

/// A policy's refusal of its place names the line of its table.
void check_start(const PolicyPlan& plan, PowerPolicy& policy, const PowerSetup& setup) {
  try {
    policy.start(setup);
  } catch (const Error& error) {
    const std::string place = plan.options->place_of(error.what());
    throw Error(error.kind(), place.empty() ? std::string(error.what()) : place + ": " + error.what());
  }
}

}  // namespace

SimulationResult simulate(const Plan& plan, std::span<PowerPolicy* const> policies) {
  const base::Steady::time_point begun = base::Steady::now();
  SimulationResult result;
  double begin = plan.logs[0].begin_s(), end = plan.logs[0].end_s();
  for (const PhaseLog& log : plan.logs)
    begin = std::min(begin, log.begin_s()), end = std::max(end, log.end_s());
  const std::vector<std::int64_t> offsets = worker_offsets(plan.workers, plan.rate_hz);
  const double constant_watts = plan.constant_share * plan.levels.rated_watts * plan.workers.count;
  const double dt = 1 / plan.rate_hz;
  const PowerSetup at_worker{dt, plan.levels.rated_watts, 1};
  const PowerSetup at_site{dt, plan.site_rated_watts(), plan.workers.count};

  std::vector<ChainLink> worker_chain, site_chain;
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const PolicyPlan& policy = plan.policies[i];
    check_start(policy, *policies[i], policy.at_site ? at_site : at_worker);
    (policy.at_site ? site_chain : worker_chain).push_back({policy.type, policies[i]});
  }

  // A timeline is played once; workers that share it differ by their offsets.
  std::vector<Load> raw;
  std::vector<ChainResult> played;
  for (const PhaseLog& log : plan.logs) {
    raw.push_back(load_of(log, plan.levels, plan.rate_hz, begin - plan.lead_s, end + plan.lead_s));
    played.push_back(play(raw.back(), worker_chain, at_worker));
    result.delay_s = std::max(result.delay_s, played.back().delay_s);
  }
  const auto add_stage = [&](const std::string& name, const Load& load) {
    Stage stage{name, load.trace(), {}, {}, joules_of(load.trace())};
    stage.measured = plan.measured == Measured::kAll ? stage.trace : settled(load, plan);
    result.stages.push_back(std::move(stage));
  };
  Load site = sum_of(raw, offsets, constant_watts);
  result.job_begin_s = static_cast<double>(site.job_begin) * dt;
  result.job_s = static_cast<double>(site.job_end - std::min(site.job_end, site.job_begin)) * dt;
  add_stage("unmitigated", site);
  for (std::size_t c = 0; c < worker_chain.size(); ++c) {
    std::vector<Load> loads;
    for (ChainResult& one : played) {
      loads.push_back(one.load);
      loads.back().watts = one.steps[c].out;
    }
    site = sum_of(loads, offsets, constant_watts);
    add_stage(fmt::format("+ {} at each worker", worker_chain[c].type), site);
    result.policies.push_back({false, at_worker.rated_watts, std::move(played[0].steps[c])});
  }
  ChainResult whole = play(site, site_chain, at_site);
  for (std::size_t c = 0; c < site_chain.size(); ++c) {
    Load after = whole.load;
    after.watts = whole.steps[c].out;
    add_stage(fmt::format("+ {} at the site", site_chain[c].type), after);
    result.policies.push_back({true, at_site.rated_watts, std::move(whole.steps[c])});
  }
  result.delay_s += whole.delay_s;
  result.wall_s = base::seconds_since(begun);

  double reference = 0;
  for (Stage& stage : result.stages) {
    try {
      const Spectrum spectrum(stage.measured, Window::kHann);
      if (&stage == &result.stages.front()) reference = spectrum.mean_square();
      stage.reading = measure(stage.measured, spectrum, reference, plan.spec, plan.site_rated_watts(), false);
    } catch (const Error& error) {
      throw Error(error.kind(),
                  fmt::format("{}: {}; raise repeat, or lower settle_s", plan.where, error.what()));
    }
  }
  return result;
}

}  // namespace tenon::power
