// The save interval, and the choice of partial recovery (CPR, arXiv 2011.02999: overheads of full and of
// partial recovery, portion of lost samples; equation numbers are those of the README). All times in seconds
// of one clock.
#pragma once

#include <tenon/sdk/recovery_options.hpp>
#include <tenon/state.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

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
  return tenon::young_interval(costs.save, costs.mtbf);
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

/// Portion of lost samples (CPR's PLS): the share of all (sample, shard) pairs whose effect failures removed.
/// Counted in whole samples, so that it is exact.
class LostSamples {
 public:
  LostSamples() = default;
  /// `total`: samples of the whole run.
  LostSamples(int shards, std::int64_t total) : total_(total), lost_until_(shards, 0) {}

  /// (4) Records that `shard` returned from its state at sample `now` to its state at `saved`.
  void lost(int shard, std::int64_t saved, std::int64_t now) {
    lost_ += now - saved;
    std::int64_t& until = lost_until_[shard];
    distinct_ += std::max<std::int64_t>(0, now - std::max(saved, until));
    until = std::max(until, now);
  }

  /// Counts a sample twice when a shard fails twice in an interval, and may exceed 1.
  double portion() const { return share(lost_); }
  /// Counts each sample of a shard once.
  double distinct_portion() const { return share(distinct_); }

  void state(StateVisitor& visitor) {
    visitor.integer("lost", lost_);
    visitor.integer("distinct", distinct_);
    for (std::size_t s = 0; s < lost_until_.size(); ++s)
      visitor.integer("lost_until." + std::to_string(s), lost_until_[s]);
  }

 private:
  double share(std::int64_t samples) const {
    const double all = static_cast<double>(total_) * static_cast<double>(lost_until_.size());
    return all > 0 ? static_cast<double>(samples) / all : 0;
  }

  std::int64_t total_ = 0, lost_ = 0, distinct_ = 0;
  std::vector<std::int64_t> lost_until_;  ///< by shard
};

}  // namespace tenon::recovery_cpr
