// An emulated cluster ([emulate]): a short run stands for a long job on many machines. Its slots are spread
// evenly over the job's hours, rows of tables belong to failure domains, domains fail by schedule, and every
// save, load and restart has a price in minutes.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <vector>

TENON_ABI_BEGIN

/// Parts of the row tables that are lost together. Hashed: row r of table p belongs to a domain by a fixed
/// hash, so that all domains see about as many accesses. Otherwise domain s is what rank s holds.
struct FailureDomains {
  int shards = 1;
  bool hashed = false;
};

/// Of a hashed division. `table` is the parameter's index.
int shard_of_row(const FailureDomains& domains, int table, std::int64_t row) noexcept;

/// What the machines of a job cost and how often they fail, in seconds of the job.
struct ClusterCosts {
  double save_s = 0;     ///< a complete save; others by their bytes
  double load_s = 0;     ///< reading back after a failure
  double restart_s = 0;  ///< finding and starting a replacement
  double mtbf_s = 0;     ///< mean time between failures of the whole job; 0 = unknown
};

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
