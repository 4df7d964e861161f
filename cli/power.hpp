// The simulation of `tenon power CONFIG` as a function: a site's file with its policies as components. Other
// commands simulate sites by it.
#pragma once

#include "power/simulation.hpp"

#include <functional>
#include <string>
#include <vector>

namespace tenon::cli {

/// Reads the site at `path` under `--set` words, lets `change` alter its plan (empty: as it is), and
/// simulates it. Throws Error(kConfig) as read_plan() and simulate() do, and where a component is no policy.
power::SimulatedSite simulate_site(const std::string& path, const std::vector<std::string>& sets,
                                   const std::function<void(power::Plan&)>& change);

}  // namespace tenon::cli
