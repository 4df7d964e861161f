// Words about two records of the same slots: for `tenon replay` and `tenon compare --witness`.
#pragma once

#include "base/json_writer.hpp"
#include "witness/witness_comparison.hpp"

#include <string>

namespace tenon::cli {

/// Some lines: the first tensor that differs, or that none does. `first`, `second`: what the two runs are
/// called, "the run" and "the replay".
std::string witness_text(const train::WitnessComparison& comparison, const std::string& first,
                         const std::string& second);
/// Members of the object that is open: slots, ranks, tensors, equal, first.
void add_witness(JsonWriter& json, const train::WitnessComparison& comparison);

}  // namespace tenon::cli
