// The kind of studies with [time_to]: beside the table of arms, when a run's metric first reaches the final
// value of its baseline, and what it had consumed by then. Times are those of the runs, or of further runs
// that only time: per link and arm the same parameters, messages, strategy and slots under the simulated
// clock, with a tiny batch and without evaluations. Their slots re-time the trajectories of the study's own
// runs.
#pragma once

#include "ab/run_record.hpp"
#include "reproduce/arms.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

/// One speed of the links, by the `--set` words that configure it.
struct TimeToLink {
  std::string name;
  std::vector<std::string> set;
};

class TimeTo : public Arms {
 public:
  double budget = 1;     ///< share of the baseline's slots at which its value is the threshold
  double looser = 0.02;  ///< share of the baseline's last value by which the second threshold is
                         ///< easier
  std::vector<std::string> timing_set;  ///< of a timing run alone: a tiny batch
  std::vector<std::string> one_seed;    ///< arms whose slots take the same time whatever the seed
  std::vector<TimeToLink> links;        ///< empty: times are those of the runs themselves

  std::string_view table() const override { return "time_to"; }
  void read(const Value& table) override;
  std::vector<config::TableSpecs> file_tables() const override;
  void check(const StudyFile& study, Problems& problems) const override;
  std::string tables(const StudyResult& result) const override;
  bool places_figure() const override { return true; }
  void json(JsonWriter& json, const StudyResult& result) const override;
  std::string figure(const StudyResult& result) const override;
  std::string lines(const StudyResult& result) const override;

 protected:
  void check_plan(const StudyFile& given, const Size& size, const Plan& plan) const override;
  std::vector<FurtherRuns> further_runs(const StudyFile& study, const Size& size, const Plan& plan,
                                        const ab::RunnerOptions& runner,
                                        const Resolver& resolve) const override;
  void read_numbers(StudyResult& result, const Plan& plan, const std::string& folder) const override;
};

/// An evaluation, or a place between two, with the consumption up to it.
struct CurvePoint {
  double step = 0;
  double seconds = 0;  ///< without evaluations
  double drawn = 0;    ///< samples taken from the data, all replicas
  double trained = 0;  ///< of them, those that made a gradient
  double bytes = 0;    ///< sent by rank 0, without evaluations
  double value = 0;    ///< the metric; may be NaN or infinite
};

using Curve = std::vector<CurvePoint>;  ///< in order of step

/// The place where a curve first is at `threshold` or better, by linear interpolation from the evaluation
/// before; the first evaluation itself if there is none before it, or if that one is not finite. Not reached:
/// the curve's end, with reached = false (censored).
struct Reach {
  bool reached = false;
  CurvePoint at;
};
Reach first_reach(const Curve& curve, double threshold, bool lower_is_better);

/// The easier threshold: away from the better side by `share` of its size.
double looser_threshold(double threshold, double share, bool lower_is_better);

/// The metric at the first place where `axis` is `x`, interpolated linearly; empty before the first
/// evaluation and beyond the end.
std::optional<double> value_at(const Curve& curve, double CurvePoint::*axis, double x);

/// A number, or one that is only known to be larger (`bound`): the time of a run that never reached the
/// threshold.
struct Bounded {
  double value = 0;
  bool bound = false;
};

/// Median and range with every censored number above all others; a median that falls on or beside one is a
/// bound.
struct Spread {
  std::size_t n = 0;
  std::size_t censored = 0;
  Bounded median, low, high;
};
/// Empty without numbers.
std::optional<Spread> spread_of(std::vector<Bounded> numbers);
/// As spread_of with the signs turned: a gap is at most what a censored time allows.
std::optional<Spread> spread_of_upper(std::vector<Bounded> numbers);

/// (baseline - arm) / baseline in per cent: positive = faster. A bound if the arm was censored: it is at most
/// that.
Bounded time_gap(double baseline_seconds, const Reach& arm);

/// Seconds and bytes by slot, from the training lines of a run, its evaluations taken out.
struct SlotTimes {
  std::vector<double> step, seconds, bytes;

  /// Linear between lines, from 0 before the first. Empty beyond the last.
  std::optional<double> seconds_at(double slot) const;
  std::optional<double> bytes_at(double slot) const;
};

struct TimingPlan {
  std::string link;
  std::string folder;  ///< DIR/timing/<link>
  Plan plan;           ///< arms as in the study; runs of the seeds that are needed
};

/// One plan per link, none without links. Throws Error(kConfig) for arms that cannot run, for a run that
/// would not be under the simulated clock, and for one whose parameters differ from those of the study's run
/// of the arm.
std::vector<TimingPlan> make_timing_plans(const StudyFile& study, const Size& size, const Plan& runs,
                                          const ab::RunnerOptions& options, const Resolver& resolve);

/// Evaluations at slots without a training line cannot be distinguished from training: throws Error(kConfig)
/// that names the arm.
void require_lines_at_evaluations(const StudyFile& study, const Plan& runs);

/// The seed whose timing run is used for `seed`.
std::int64_t timing_seed(const StudyFile& study, const Size& size, const std::string& arm, std::int64_t seed);

/// Consumption up to one threshold: over the seeds, and the number of runs that are missing.
struct ToThreshold {
  std::vector<std::optional<Reach>>
      runs;  ///< in the order of the seeds; empty: the run or its baseline is missing
  std::optional<Spread> seconds;
  std::optional<Spread> gap;  ///< to the baseline's own time, per cent, positive = faster; not of a baseline
};

/// An arm under one link.
struct TimedArm {
  ToThreshold strict, looser;
  std::optional<Spread> at_equal_time;  ///< the metric where the first arm of the same baseline ends
  std::optional<Spread> total_seconds;  ///< of the whole run
  std::optional<ab::TimeSplit> split;   ///< mean over ranks and timed runs
};

/// Consumption up to the strict and the looser threshold, independent of the link.
struct Used {
  std::optional<Spread> steps, trained, drawn, bytes;
};

struct TimeToArm {
  std::vector<TimedArm> links;
  Used strict, looser;
  std::optional<Spread>
      at_equal_samples;  ///< the metric where the first arm of the same baseline has trained all
  std::vector<std::optional<double>> thresholds;  ///< by seed: the baseline's last value
};

struct TimeToResult : KindNumbers {
  std::vector<std::string> links;  ///< "as run" if the study names none
  bool simulated = false;
  std::vector<TimeToArm> arms;
};

/// Reads the timing runs below `folder`/timing and times the runs of `study`. Missing runs become lines of
/// study.warnings and make the study incomplete.
void read_time_to_results(StudyResult& study, const std::string& folder);

/// Slots of a run: its training lines, without the time of its evaluations of `metric`.
SlotTimes slot_times(const ab::RunRecord& run, const std::string& metric);

/// Evaluations of a run, timed by `times`; empty if an evaluation is beyond them.
std::optional<Curve> timed_curve(const ab::RunRecord& run, const std::string& metric, const SlotTimes& times);

/// "12.3", "> 80.1" for a bound from below, "< -20" with `upper`.
std::string bounded_text(const Bounded& value, int decimals, bool upper, bool sign);
/// Median and range: "12.3 (11.9 to > 13.0)".
std::string spread_text(const std::optional<Spread>& spread, int decimals, bool upper, bool sign);
/// "3 of 3", "1 of 3, 1 missing".
std::string reached_text(const ToThreshold& to);

}  // namespace tenon::reproduce
