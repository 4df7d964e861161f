// A study as one call: simulate its data, plan, run what is missing, read, write table and figure. The
// command `tenon reproduce` is a thin shell around it.
#pragma once

#include "reproduce/plan.hpp"
#include "reproduce/render.hpp"
#include "reproduce/results.hpp"

#include <functional>
#include <string>

namespace tenon::reproduce {

struct Request {
  std::string program;  ///< file of this program
  std::string folder;   ///< DIR; made if absent
  std::string command;  ///< the whole command line, for the table
  int jobs = 1;
  Resolver resolve;
  std::function<Config(const Config& run)> resolve_config = {};  ///< as ab::RunnerOptions::resolve
  Evaluator evaluate = {};                                       ///< of studies with [[evaluate]]
  DecodeMeasure decode = {};                                     ///< of studies with [decode]
  SimulationCheck check_simulation = {};                         ///< of kinds whose runs are simulations
  SiteSimulator simulate_site = {};                              ///< of kinds that simulate sites
  std::function<void(const std::string& line, bool finished)> progress = {};
};

struct Outcome {
  StudyResult result;
  ab::RunnerResult runs;
  std::size_t kept = 0, continued = 0, started = 0;
  std::string markdown_path, json_path, figure_path;
  int exit_status = 0;  ///< 0 when every run ended as the study expects, else 1
};

/// Makes the missing runs and writes DIR/table.md, DIR/table.json and DIR/figure.svg from all runs, also
/// after an interruption. Throws Error(kConfig) for errors before the first run, and for a folder that holds
/// another study or size.
Outcome reproduce(const StudyFile& study, const Size& size, const Request& request);

/// Failures with their logs, the table's main lines, and the paths of the results.
std::string closing_text(const Outcome& outcome);

}  // namespace tenon::reproduce
