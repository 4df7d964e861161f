// Files of `tenon power`: the configuration, levels of phases, specifications of grids. Checked; nothing is
// simulated here.
#pragma once

#include "power/site.hpp"

#include "config/run_schema.hpp"

#include <tenon/config.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::power {

enum class Offsets { kMeasured, kAligned };
enum class Measured { kJob, kAll };

/// One table [[power.policy]].
struct PolicyPlan {
  std::string type;
  bool at_site = false;
  std::unique_ptr<ResolvedOptions> options;
};

struct Plan {
  std::string name;    ///< of the file
  std::string where;   ///< of [power], for errors that a simulation finds
  std::string folder;  ///< of the results
  double rate_hz = 1000;
  double lead_s = 1;  ///< idle before and after the job
  Measured measured = Measured::kJob;
  double settle_s = 0;        ///< of the job, left out of the metrics
  double constant_share = 0;  ///< of the workers' rated power, drawn at all times
  std::int64_t repeat = 1;
  Levels levels;
  GridSpec spec;
  std::vector<PhaseLog> logs;  ///< by rank, or one of a script; repeated
  Workers workers;
  Offsets offsets = Offsets::kMeasured;
  std::vector<PolicyPlan> policies;  ///< those of workers come first
  std::vector<std::string> plugin_paths, notes;

  double site_rated_watts() const { return levels.rated_watts * workers.count * (1 + constant_share); }
};

/// The tables of a site, of levels and of specifications, with their keys.
std::vector<config::TableSpecs> power_tables();

/// Throws Error(kConfig) with one line per problem, each with file and line. `path` names the folder unless
/// the file does.
Plan read_plan(const Config& config, const ComponentCatalog& catalog, const std::string& path);

/// Checks a file of any of the three sorts. Throws as their readers.
void read_file(const std::string& path, const ComponentCatalog& catalog);

/// configs/power/example_utility.toml and files like it.
GridSpec read_spec(const std::string& path);
/// configs/power/h100_like.toml and files like it.
Levels read_levels(const std::string& path);

/// `times` copies of logs that share a clock, one after the other.
std::vector<PhaseLog> repeated(std::vector<PhaseLog> logs, std::int64_t times);

}  // namespace tenon::power
