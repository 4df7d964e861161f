// A study on disk: the runs of every arm and seed, paired by seed, with the reasons that forbid a comparison.
// It decides whether runs may be compared; analysis.hpp compares them.
#pragma once

#include "ab/experiment.hpp"
#include "ab/run_record.hpp"
#include "ab/tuning.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::ab {

struct ArmRuns {
  Arm arm;
  /// By position in Experiment::seeds; empty = no usable run. An arm that left a sequential study has as many
  /// as it had pairs then.
  std::vector<std::optional<RunRecord>> runs;
};

/// A configuration key whose value is not the same in all arms.
struct ConfigRow {
  std::string key;
  std::vector<std::string> values;  ///< as TOML, per arm; "" = absent there
};

/// A seed of a factorial study with a failed or missing run: it is in no contrast.
struct LeftOutSeed {
  std::int64_t seed = 0;
  std::vector<std::string> why;
};

struct Study {
  Experiment experiment;
  std::string folder;
  int jobs = 1;  ///< runs that shared the machine; more than one makes wall-clock numbers meaningless
  bool self_check = false;  ///< A/A
  std::vector<ArmRuns> arms;
  std::vector<ConfigRow> config_difference;
  /// Runs that are missing, unfinished or diverged, and pairs that are not comparable. Not empty: no verdict.
  std::vector<std::string> refusals;
  std::vector<std::string> notes;          ///< remarks for the reader that do not forbid the comparison
  std::optional<Tuning> tuning = {};       ///< how the arms came to their settings
  std::vector<LeftOutSeed> left_out = {};  ///< of a factorial study; no seed of the experiment any more

  bool wall_clock_valid() const { return jobs == 1; }
  /// Over the runs that are there.
  double sum(double RunRecord::*amount) const;
};

/// DIR/runs/<arm>/<seed>: the folder of one run's attempts.
std::string run_parent(const std::string& folder, const std::string& arm, std::int64_t seed);

/// Reads the newest attempt of every arm and seed below `folder` and checks it. Missing and broken runs
/// become refusals, not exceptions, so that a report can show the rest.
Study load_study(const Experiment& experiment, const std::string& folder, int jobs, bool self_check);
/// As load_study, of the first `pairs[a]` seeds of each arm; the study's seeds are those of the baseline.
/// `study` has folder, jobs and self_check; runs that an earlier call has read are not read again.
void extend_study(Study& study, const Experiment& experiment, const std::vector<std::size_t>& pairs);

/// The checks of load_study on runs already in memory; fills config_difference, refusals and notes.
void check_study(Study& study);

/// Reasons why two runs of one seed must not be compared, one sentence each; empty if they may be. Compares
/// consumption, the evaluation set and the target.
std::vector<std::string> pairing_refusals(const Experiment& experiment, const RunRecord& a,
                                          const RunRecord& b);

}  // namespace tenon::ab
