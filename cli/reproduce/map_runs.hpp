// A study of simulations as runs of `tenon simulate`: every arm by every number of workers, once per seed. A
// finished one is kept while its configuration matches the study; an interrupted one starts anew beside it,
// because half of a simulation has no rate.
#pragma once

#include "reproduce/plan.hpp"

#include <string>
#include <vector>

namespace tenon::reproduce {

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

}  // namespace tenon::reproduce
