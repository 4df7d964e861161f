// The data and the runs of a study that remain to be made. Finished runs are kept while their resolved
// configuration matches the study, interrupted ones continue, everything else starts anew beside existing
// attempts.
#pragma once

#include "ab/runner.hpp"
#include "power/simulation.hpp"
#include "reproduce/study_file.hpp"

#include <tenon/config.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tenon::reproduce {

/// A configuration as a run would resolve it, and facts from building it.
struct ResolvedRun {
  Value root;                      ///< every value, with its origin
  std::vector<std::string> facts;  ///< "parameters: 840960 trained, ...", as `tenon check` prints them
  /// Names of the shared folders of a run in stages, whose last one `root` is: they say what the stages are.
  std::vector<std::string> stages = {};
};
/// Resolves and checks a configuration file under `--set` words. Throws Error for one that cannot run here.
using Resolver = std::function<ResolvedRun(const std::string& path, const std::vector<std::string>& sets)>;

/// Resolves a configuration of `tenon simulate` under `--set` words. Throws Error for one that cannot run.
using SimulationCheck = std::function<void(const std::string& path, const std::vector<std::string>& sets)>;

/// Simulates a configuration of `tenon power` under `--set` words, after `change` has altered its plan
/// (empty: as it is). Throws Error for one that cannot run.
using SiteSimulator =
    std::function<power::SimulatedSite(const std::string& path, const std::vector<std::string>& sets,
                                       const std::function<void(power::Plan&)>& change)>;

enum class Action { kKeep, kContinue, kStart };

struct PlannedRun {
  ab::Job job;  ///< with --resume when it continues
  Action action = Action::kStart;
  std::string reason;  ///< why it starts although an attempt exists; "" otherwise
};

struct Plan {
  ab::Experiment experiment;
  std::vector<ResolvedRun> arms;  ///< with the first seed
  std::vector<PlannedRun> runs;
};

/// Writes the arm files, resolves every arm (Error(kConfig) names the arm that cannot run) and examines the
/// attempts below the folder of `options`.
Plan make_plan(const StudyFile& study, const Size& size, const ab::RunnerOptions& options,
               const Resolver& resolve);

/// The same for a run in stages, given the names of their shared folders.
Action action_for_stages(const std::string& parent, const std::vector<std::string>& wanted,
                         std::string& reason);

/// The action for the newest attempt below `parent`, given the leaves of the wanted configuration.
Action action_for(const std::string& parent, const std::map<std::string, std::string>& wanted, bool may_fail,
                  std::string& reason);

// The data of a study: `tenon simulate` as a child process before the first run.

/// Whether the study simulates its data at this size.
bool simulates(const StudyFile& study, const Size& size);

/// The size with which its runs are made: data.path is the simulation below `folder`, the study's folder as
/// given, so that a configuration names no folder of the machine unless the user did.
Size with_simulation(const StudyFile& study, const Size& size, const std::string& folder);

/// Makes or continues FOLDER/simulation and returns its description for the table: "navier_stokes, 240 of 240
/// samples, ...". A complete one is checked and kept. Throws Error(kRun) with the end of the child's log if
/// it fails or was interrupted; then the same command continues.
std::string simulate_data(const StudyFile& study, const Size& size, const std::string& folder,
                          const ab::RunnerOptions& runner);

}  // namespace tenon::reproduce
