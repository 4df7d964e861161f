// The save interval, and the choice of partial recovery (CPR, arXiv 2011.02999: overheads of full and of
// partial recovery, portion of lost samples; equation numbers are those of the README). All times in seconds
// of one clock.
#pragma once

#include <cmath>

namespace tenon::recovery_cpr {

struct Costs {
  double save = 0;     ///< a complete save
  double load = 0;     ///< after a failure
  double restart = 0;  ///< after a failure
  double mtbf = 0;     ///< mean time between failures of the job
};

/// Shards of the tables that are lost together, and the number lost per failure.
struct Shards {
  int count = 1;
  int lost = 1;
};

/// (3) argmin of full_overhead (Young 1974).
inline double young_interval(const Costs& costs) {
  return std::sqrt(2 * costs.save * costs.mtbf);
}

/// (1) Overhead of full recovery as a share of productive time: half an interval is recomputed.
inline double full_overhead(const Costs& costs, double interval) {
  return costs.save / interval + (costs.load + interval / 2 + costs.restart) / costs.mtbf;
}

/// (2) Overhead of partial recovery: nothing is recomputed.
inline double partial_overhead(const Costs& costs, double interval) {
  return costs.save / interval + (costs.load + costs.restart) / costs.mtbf;
}

/// (5) Expected portion of lost samples of a job much longer than the interval.
inline double expected_pls(double interval, const Costs& costs, const Shards& shards) {
  return 0.5 * interval * shards.lost / (costs.mtbf * shards.count);
}

/// (6) The interval at which (5) equals `target`.
inline double pls_interval(double target, const Costs& costs, const Shards& shards) {
  return 2 * target * shards.count * costs.mtbf / shards.lost;
}

/// (7) Expected portion for a job of `total` seconds, failures from a Poisson process; exact.
inline double expected_pls(double interval, double total, const Costs& costs, const Shards& shards) {
  const double whole = std::floor(total / interval);
  const double rest = total - whole * interval;
  const double lost = (whole * interval * interval + rest * rest) / 2;  // of t mod interval over the job
  return shards.lost * lost / (shards.count * total * costs.mtbf);
}

struct Choice {
  bool partial = false;
  double interval = 0;
  double full = 0,
         partial_cost = 0;  ///< the compared overheads; the second one is infinite below the least interval
};

/// Chooses partial recovery if it costs less at an interval that keeps the expected portion at `target`;
/// otherwise, also at a tie, full recovery at Young's interval. `least`: the smallest interval that can be
/// kept.
inline Choice choose(double target, const Costs& costs, const Shards& shards, double least) {
  Choice choice;
  const double young = young_interval(costs), interval = pls_interval(target, costs, shards);
  choice.full = full_overhead(costs, young);
  choice.partial_cost = interval < least ? HUGE_VAL : partial_overhead(costs, interval);
  choice.partial = choice.partial_cost < choice.full;
  choice.interval = choice.partial ? interval : young;
  return choice;
}

}  // namespace tenon::recovery_cpr
