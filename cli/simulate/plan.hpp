// The configuration of `tenon simulate`: the tables [simulate] and [simulator], checked, and the place of
// this process among those that a launcher started. It makes nothing.
#pragma once

#include "config/run_schema.hpp"

#include <tenon/config.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::simulate {

/// [simulate]
struct Settings {
  std::int64_t samples = 0;
  std::uint64_t seed = 1;
  std::int64_t workers = 1;   ///< processes
  double task_timeout_s = 0;  ///< of one attempt
  double timeout_s = 0;       ///< of the whole call; 0 = none
  std::int64_t retries = 0;   ///< further attempts after a time-out or a lost process
  double crash_share = 0;     ///< of the tasks, whose process dies in the first attempt
  double hang_share = 0;      ///< of the tasks, whose first attempt hangs until its time is over
  std::string folder;
  bool hdf5 = false;  ///< all samples in one file, too
};

struct Plan {
  Settings settings;
  std::string type;                       ///< as written: "darcy"
  std::string id;                         ///< "darcy"
  std::string config;                     ///< the table [simulator] with its defaults, canonical TOML
  std::vector<std::string> plugin_paths;  ///< absolute
  std::vector<std::string> warnings;
};

/// The tables that such a file may have.
std::vector<std::string> table_names();
/// The same with their keys.
std::vector<config::TableSpecs> simulation_tables();

/// Throws Error(kConfig) with one line per problem. `path`: the file, which names the folder unless it does.
Plan read_plan(const Config& config, const ComponentCatalog& catalog, const std::string& path);

/// Options of a simulator from Plan::config, and its type.
struct SimulatorOptions {
  std::string type;
  std::unique_ptr<ResolvedOptions> options;
};
SimulatorOptions simulator_options(const std::string& config, const ComponentCatalog& catalog);

/// The place of this process among those that a launcher started for one simulation: mpirun of Open MPI or
/// MPICH, srun of Slurm.
struct Place {
  std::int64_t index = 0, count = 1;
  /// Whether this process makes that sample.
  bool makes(std::int64_t sample) const { return sample % count == index; }
};
/// The place from the launcher's environment; empty without one, or for one process. Throws Error(kConfig)
/// for impossible numbers.
std::optional<Place> launched();

}  // namespace tenon::simulate
