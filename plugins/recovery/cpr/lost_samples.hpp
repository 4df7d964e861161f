// Portion of lost samples (CPR's PLS): the share of all (sample, shard) pairs whose effect failures removed.
// Counted in whole samples, so that it is exact.
#pragma once

#include <tenon/state.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace tenon::recovery_cpr {

class LostSamples {
 public:
  LostSamples() = default;
  /// `total`: samples of the whole run.
  LostSamples(int shards, std::int64_t total)
      : total_(total), lost_until_(static_cast<std::size_t>(shards), 0) {}

  /// (4) Records that `shard` returned from its state at sample `now` to its state at `saved`.
  void lost(int shard, std::int64_t saved, std::int64_t now) {
    lost_ += now - saved;
    std::int64_t& until = lost_until_[static_cast<std::size_t>(shard)];
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
