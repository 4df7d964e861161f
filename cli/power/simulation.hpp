// One simulation of a site from its plan: the site's load without policies and after each of them, and what
// the meter reads. Every number here is modelled.
#pragma once

#include "power/plan.hpp"

#include <string>
#include <vector>

namespace tenon::power {

/// The site after some of the policies.
struct Stage {
  std::string name;  ///< "unmitigated", "+ floor_ramp at each worker"
  Trace trace;
  Trace measured;  ///< the part that the meter read
  Reading reading;
  double energy_j = 0;  ///< of the whole trace
};

/// A policy's effect at its place.
struct PolicyResult {
  bool at_site = false;
  double rated_watts = 0;  ///< of the place
  Played played;           ///< of the first worker, or of the site
};

struct SimulationResult {
  std::vector<Stage> stages;
  std::vector<PolicyResult> policies;
  double delay_s = 0;                 ///< by which throttling made the slowest job longer
  double job_begin_s = 0, job_s = 0;  ///< of the unmitigated site
  double wall_s = 0;                  ///< of the simulation, without the meter
};

/// A site and what came of it.
struct SimulatedSite {
  Plan plan;
  SimulationResult result;
};

/// `policies` are the plan's, in its order. Throws Error(kConfig), with the place in the file where a policy
/// refuses its place.
SimulationResult simulate(const Plan& plan, std::span<PowerPolicy* const> policies);

}  // namespace tenon::power
