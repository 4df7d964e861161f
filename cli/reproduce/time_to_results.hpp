// Every number of a study of time to a loss, computed once; table, JSON and figure only print these.
#pragma once

#include "ab/run_record.hpp"
#include "reproduce/time_to.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

struct StudyFile;
struct Size;
struct StudyResult;

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

struct TimeToResult {
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

}  // namespace tenon::reproduce
