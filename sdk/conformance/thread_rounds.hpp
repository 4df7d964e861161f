// The same computation with 1, 2 and 4 threads, several times: results must have the same bits. Sums in the
// order in which threads end differ between such rounds.
#pragma once

#include "subject.hpp"

#include <functional>
#include <string>
#include <vector>

namespace tenon::conformance {

/// More elements than four blocks of the parallel loops of the templates (16384 each).
inline constexpr std::int64_t kManyElements = 5 * 16384 + 7;

/// Calls `compute` with one thread, then in several rounds with 2 and with 4, each on a device that was
/// opened with as many, and fails unless every round returns the bits of the first. `what` begins the
/// message. Does not apply on other devices, and where the component declares that it is nondeterministic.
/// Ends early when rounds are long.
void require_same_bits(Subject& subject, const std::string& what,
                       const std::function<std::vector<double>(Device&)>& compute);

}  // namespace tenon::conformance
