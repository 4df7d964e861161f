// Every number of a study of simulations, computed once from the output and files of `tenon simulate`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

struct MapRun;
struct StudyResult;

/// Output of one call of `tenon simulate --json`, and the digests of its samples.
struct MapRecord {
  std::string status;  ///< completed, interrupted, timed out, missing
  std::string reason;  ///< if the status is missing
  std::int64_t workers = 0;
  double finished = 0, failed = 0, repeated = 0, lost_workers = 0, wall_s = 0, busy_s = 0;
  std::map<std::int64_t, std::string> digests;  ///< by task

  bool usable() const { return status == "completed" && finished > 0 && wall_s > 0; }
  double rate() const { return finished / wall_s; }
};

/// The attempt below `folder`. Never throws for an incomplete run: its status is missing, with the reason.
MapRecord read_map_record(const std::string& folder);

struct RateRange {
  std::size_t n = 0;
  double mean = 0, low = 0, high = 0;
};

/// An arm by one number of workers, over the seeds.
struct MapPoint {
  std::size_t arm = 0;  ///< of the study
  std::int64_t workers = 1;
  std::vector<std::optional<MapRecord>> runs;  ///< by seed
  std::optional<RateRange> rate;               ///< finished tasks per second
  std::optional<RateRange> efficiency;         ///< rate / (workers x rate of the baseline by one), same seed
  std::optional<double> busy;                  ///< share of the workers' time between an order and its answer
  std::optional<double> attempt_s;             ///< of a worker, per attempt
  double finished = 0, repeated = 0, lost_workers = 0, holes = 0;  ///< mean over seeds
  std::size_t equal = 0, compared = 0;  ///< samples with the bits of the baseline by one worker, all seeds
};

struct MapResult {
  std::vector<MapPoint> points;
};

/// Fills StudyResult::simulation, its warnings and its provenance; not complete if a run is missing or
/// samples differ.
void read_map_results(StudyResult& result, const std::vector<MapRun>& runs);

}  // namespace tenon::reproduce
