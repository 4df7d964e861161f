// The table [map] of a study file: arms are simulations of `tenon simulate`, each by several numbers
// of worker processes.
#pragma once

#include <tenon/config.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tenon::reproduce {

struct StudyFile;
struct Size;

struct SimulationMap {
  std::vector<std::int64_t> workers;  ///< ascending, from 1

  /// Numbers of a size, which may have its own.
  const std::vector<std::int64_t>& workers_at(const Size& size) const;
};

/// Reads the table. Throws Error(kConfig) for keys and types.
SimulationMap read_simulation_map(const Value& table);

/// Reports errors of a study of simulations by `say(key, problem)`.
void check_simulation_map(const StudyFile& study,
                          const std::function<void(const std::string& key, const std::string& problem)>& say);

}  // namespace tenon::reproduce
