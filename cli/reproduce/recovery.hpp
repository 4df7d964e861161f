// The kind of studies with [recovery]: beside the table of arms, costs of an emulated cluster's failures for
// each arm, over the runs and over many schedules without training. Every number is computed once from the
// runs' recovery.jsonl: sums of the charges event by event, and the same sums over schedules.
#pragma once

#include "ab/statistics.hpp"
#include "config/run_schema.hpp"
#include "reproduce/arms.hpp"

#include <tenon/recovery.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

/// An entry of [[recovery.pair]]: a difference of two arms in the study's metric, per pair of equal seeds.
struct RecoveryPair {
  std::string arm, minus, title;
};

/// An entry of [[recovery.line]]: does the loss in the metric grow in proportion to the lost samples?
struct RecoveryLine {
  std::string title;
  std::vector<std::string> arms;
};

class Recovery : public Arms {
 public:
  std::int64_t draws = 1000;  ///< schedules per arm
  std::string full;           ///< arm whose overhead is divided by that of the others; "" for none
  std::vector<RecoveryPair> pairs;
  std::vector<RecoveryLine> fits;

  std::string_view table() const override { return "recovery"; }
  void read(const Value& table) override;
  std::vector<config::TableSpecs> file_tables() const override;
  void check(const StudyFile& study, Problems& problems) const override;
  std::string tables(const StudyResult& result) const override;
  void json(JsonWriter& json, const StudyResult& result) const override;
  std::string figure(const StudyResult& result) const override;
  std::string lines(const StudyResult& result) const override;
  std::string legend(const StudyResult& result) const override { return ""; }

 protected:
  void read_numbers(StudyResult& result, const Plan& plan, const std::string& folder) const override;
};

/// Hours of the emulated job.
struct ChargedHours {
  double save = 0, load = 0, restart = 0, repeat = 0;
  double total() const { return save + load + restart + repeat; }
};

/// A save that was charged: its time, and its bytes as a share of a complete one.
struct ChargedSave {
  double hour = 0, share = 0;
};

/// One run's recovery.jsonl.
struct RecoveryRun {
  std::int64_t seed = 0;
  ChargedHours charged;
  double productive_hours = 0;
  std::vector<ChargedSave> saves;         ///< each hour once, ascending
  double written = 0, written_share = 0;  ///< of all charged saves: bytes, and in complete saves
  double save_s = 0;  ///< of this machine: mean seconds of a charged save, from copy to commit
  std::int64_t failures = 0;
  double lost_accesses = 0;   ///< sum over failures of the share of all accesses so far
  double pls = 0;             ///< the policy's account
  double always_whole = 0;    ///< share of the tables' bytes that each priority save writes
  double interval_hours = 0;  ///< between saves that are worth a complete one
  bool partial = false;
  std::vector<double> access_shares;
  double overhead_percent() const {
    return productive_hours > 0 ? 100 * charged.total() / productive_hours : 0;
  }
};

/// Over schedules without training: an arm's saves as its runs made them, failures drawn anew.
struct ScheduleDraws {
  std::int64_t draws = 0;
  double failures = 0;  ///< mean
  ab::MeanEstimate overhead_percent;
  ab::MeanEstimate ratio;  ///< per draw: overhead of the full arm over this arm's
  double ratio_of_means = 0;
  ab::MeanEstimate pls;
  std::optional<double> law;  ///< mean PLS by equation, for exponential times
};

struct RecoveryArm {
  std::vector<RecoveryRun> runs;
  ChargedHours charged;  ///< mean
  std::optional<ab::MeanEstimate> overhead_percent, ratio, pls, lost_accesses;
  double saves = 0, written_share = 0, failures = 0;  ///< mean; bytes in complete saves
  double written = 0, save_s = 0;                     ///< mean; bytes, and seconds of one save
  std::optional<double> always_whole;
  std::optional<ScheduleDraws> drawn;  ///< where the arm's failures are drawn
};

struct RecoveryDifference {
  std::string title;
  std::optional<ab::MeanEstimate> value;  ///< of the metric, absolute
};

/// Least squares through (PLS, metric of the arm - metric of its baseline), a point per arm: means over
/// seeds.
struct RecoveryFit {
  std::string title;
  struct Point {
    double pls = 0;
    ab::MeanEstimate difference;
  };
  std::vector<Point> points;  ///< ascending in PLS
  double slope = 0, intercept = 0;
  double correlation = 0;          ///< Pearson's, over the points
  double correlation_of_runs = 0;  ///< over single runs
};

struct RecoveryResult : KindNumbers {
  std::vector<RecoveryArm> arms;  ///< in the order of the study
  std::vector<RecoveryDifference> pairs;
  std::vector<RecoveryFit> fits;
  std::vector<double> access_shares;  ///< of the failure domains, first run that has them
};

/// Cost of one schedule for an arm with these saves, by the clock rules of recovery.jsonl.
ChargedHours charge_schedule(const std::vector<config::EmulatedFailure>& failures,
                             const std::vector<ChargedSave>& saves, bool partial, double save_hours,
                             double load_hours, double restart_hours);
/// Portion of lost samples of a schedule under partial recovery, saves counted at multiples of `interval`.
double schedule_pls(const std::vector<config::EmulatedFailure>& failures, double interval, double hours,
                    int shards);

/// Slope, intercept and Pearson's correlation of y over x; zeros where x does not vary.
struct StraightLine {
  double slope = 0, intercept = 0, correlation = 0;
};
StraightLine straight_line(const std::vector<double>& x, const std::vector<double>& y);

/// Reads one run. Throws Error(kRun) that names the file and the line.
RecoveryRun read_recovery_run(const std::string& folder);
/// Fills StudyResult::numbers.
void read_recovery_results(StudyResult& result);

/// Costs of failures and saves, schedules without training, differences of arms.
std::string recovery_tables(const StudyResult& result);
/// An arm per bar: hours charged for saves, loads, restarts and repeated work.
std::string recovery_figure(const StudyResult& result, double width, double& height);

}  // namespace tenon::reproduce
