// The kind of studies with [map]: nothing is trained; arms are simulations of `tenon simulate`, each by
// several numbers of worker processes, once per seed. A finished one is kept while its configuration matches
// the study; an interrupted one starts anew beside it, because half of a simulation has no rate.
#pragma once

#include "reproduce/study_kind.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

class SimulationMap : public StudyKind {
 public:
  std::vector<std::int64_t> workers;  ///< ascending, from 1

  /// Numbers of a size, which may have its own.
  const std::vector<std::int64_t>& workers_at(const Size& size) const;

  std::string_view table() const override { return "map"; }
  void read(const Value& table) override;
  std::vector<config::TableSpecs> file_tables() const override;
  void check(const StudyFile& study, Problems& problems) const override;
  bool counts_steps() const override { return false; }
  bool has_points() const override { return true; }
  std::string size_text(const StudyFile& study, const Size& size) const override;
  Outcome run(const StudyFile& study, const Size& size, const Request& request,
              ab::RunnerOptions runner) const override;
  std::string tables(const StudyResult& result) const override;
  std::string every_run(const StudyResult& result) const override;
  void json(JsonWriter& json, const StudyResult& result) const override;
  std::string figure(const StudyResult& result) const override;
  std::string lines(const StudyResult& result) const override;
};

/// The run of one arm, number of workers and seed.
struct MapRun {
  std::size_t arm = 0;  ///< of the study
  std::int64_t workers = 1, seed = 1;
  std::string folder;  ///< its newest attempt: wanted.toml, output.log, simulation/
  bool kept = false;
  std::string reason;  ///< why it starts although an attempt exists
};

struct MapPlan {
  ab::Experiment experiment;  ///< an arm per arm and number of workers, for progress lines
  std::vector<MapRun> runs;   ///< seeds in alternating order: AB, BA, AB, ...
  std::vector<ab::Job> jobs;  ///< of the runs that are not kept
};

/// Writes the arm files, checks every arm and examines existing attempts. Throws Error(kConfig) that names
/// the arm that cannot run.
MapPlan plan_map(const StudyFile& study, const Size& size, const ab::RunnerOptions& options,
                 const SimulationCheck& check);

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

struct MapResult : KindNumbers {
  std::vector<MapPoint> points;
};

/// Fills StudyResult::numbers, its warnings and its provenance; not complete if a run is missing or
/// samples differ.
void read_map_results(StudyResult& result, const std::vector<MapRun>& runs);

}  // namespace tenon::reproduce
