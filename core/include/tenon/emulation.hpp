// An emulated cluster ([emulate]): a short run stands for a long job on many machines. Its slots are spread
// evenly over the job's hours, rows of tables belong to failure domains, domains fail by schedule, and every
// save, load and restart has a price in minutes.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <vector>

TENON_ABI_BEGIN

/// When domains fail: a renewal process whose times between failures have this law.
struct FailureLaw {
  double hours = 0;       ///< length of the job
  double mean_hours = 0;  ///< between failures; 0 = none
  double shape = 1;       ///< of the gamma law; 1 = exponential
  int shards = 1;
  int lost = 1;      ///< domains that each failure takes
  int at_least = 0;  ///< draws with fewer failures are drawn again
  std::uint64_t seed = 1;
};

struct EmulatedFailure {
  double hour = 0;  ///< of productive time
  std::vector<int> shards;
  bool operator==(const EmulatedFailure& other) const = default;
};

/// One draw, ascending in time. Victims are dealt from a shuffled deck of all domains, so that none is taken
/// twice before each was taken once. Throws Error(kConfig) when `at_least` is beyond what the law gives.
std::vector<EmulatedFailure> draw_failures(const FailureLaw& law);

TENON_ABI_END
