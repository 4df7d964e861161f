// Entries of [[tables.place]] against each other: apart from run_check.cpp, which reads them one by one.
#pragma once

#include <tenon/config.hpp>

#include <string>
#include <utility>
#include <vector>

namespace tenon::config {

/// Places with the pattern of an earlier one and other tiers, each where it is written. `places`: resolved.
std::vector<std::pair<Origin, std::string>> contradictions(const Value& places);

}  // namespace tenon::config
