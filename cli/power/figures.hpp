// The six drawings of `tenon power`, each an SVG file that stands alone and follows light and dark pages. A
// drawing that needs a policy which the chain lacks is left out. All that they show is modelled, and they say
// so.
#pragma once

#include "power/simulation.hpp"

#include <string>
#include <utility>
#include <vector>

namespace tenon::power {

/// Name of the file -> drawing.
std::vector<std::pair<std::string, std::string>> figures(const Plan& plan, const SimulationResult& result);

}  // namespace tenon::power
