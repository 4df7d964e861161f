// The schedule of an emulated cluster ([emulate]) as one rank follows it, and what its row accesses were
// worth when rows are lost.
#pragma once

#include "config/run_schema.hpp"

#include <tenon/parameter.hpp>
#include <tenon/recovery.hpp>

#include <span>
#include <vector>

namespace tenon::train {

/// One draw, ascending in time. Victims are dealt from a shuffled deck of all domains, so that none is taken
/// twice before each was taken once. Throws Error(kConfig) when `at_least` is more than the law yields.
std::vector<config::EmulatedFailure> draw_failures(const config::FailureLaw& law);

class EmulatedFailures {
 public:
  /// `parameters`: of the model; row tables are counted. Scripted and drawn failures together, by hour.
  EmulatedFailures(const config::EmulateSettings& settings, std::int64_t steps,
                   std::span<const ParameterInfo> parameters);

  const FailureDomains& domains() const { return settings_.domains; }
  double hour(std::int64_t slot) const;
  /// Failures before `slot` are over; those at its boundary are not.
  void start_at(std::int64_t slot);
  void start_with(std::size_t index) { next_ = index; }
  std::size_t next() const { return next_; }
  /// The failure that is due at this boundary, or null. An end of the run is no boundary at which one
  /// happens.
  const config::EmulatedFailure* due(std::int64_t slot) const;
  void happened() { ++next_; }

  void accessed(int table, std::span<const std::int64_t> ids, std::span<const std::uint32_t> counts);
  void saved(const SavePlan& plan);
  /// Accesses of rows of `shards` since each row was saved, as a share of all accesses so far; they are
  /// forgotten.
  double lose(std::span<const int> shards);
  /// Share of all accesses that each domain has had.
  std::vector<double> access_shares() const;

 private:
  struct Table {
    std::int64_t first = 0;                 ///< of the rows that this rank holds
    std::vector<std::uint64_t> since_save;  ///< by row
  };
  std::int64_t slot_of(const config::EmulatedFailure& failure) const;

  const config::EmulateSettings& settings_;
  std::int64_t steps_;
  std::vector<config::EmulatedFailure> failures_;
  std::size_t next_ = 0;
  std::vector<Table> tables_;            ///< by parameter; empty for dense ones
  std::vector<std::uint64_t> accesses_;  ///< by domain
};

}  // namespace tenon::train
