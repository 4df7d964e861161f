// The tables [[factor]] of an experiment: factors with their levels, whose full product are the arms. Plain
// data, the numbering of cells, and the refusals; factorial.hpp analyses the runs.
#pragma once

#include "config/run_schema.hpp"

#include <tenon/config.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tenon::ab {

struct FactorLevel {
  std::string name;
  std::vector<std::string> set = {};  ///< "a.b=c", as on the command line; empty: as in the base
};

struct Factor {
  std::string name;
  std::vector<FactorLevel> levels = {};  ///< the first is the baseline level
};

inline constexpr std::size_t kMostCells = 32;

/// Product of the numbers of levels.
std::size_t cell_count(std::span<const Factor> factors);
/// The level of every factor in a cell. The last factor varies fastest; cell 0 has all first levels.
std::vector<std::size_t> levels_of_cell(std::span<const Factor> factors, std::size_t cell);
std::size_t cell_of_levels(std::span<const Factor> factors, std::span<const std::size_t> levels);
/// "rounding-nearest_rotation-none": the arm and its folder.
std::string cell_name(std::span<const Factor> factors, std::size_t cell);
/// The settings of all its levels.
std::vector<std::string> cell_sets(std::span<const Factor> factors, std::size_t cell);

/// Reads the tables from an experiment's root; empty if there are none. Throws Error(kConfig) with file and
/// line, also for keys of the root that have no place beside them: arm, sequential, tune, a time to target.
std::vector<Factor> read_factors(const Value& root);
/// Its tables, for schemas.
std::vector<config::TableSpecs> factor_tables();

}  // namespace tenon::ab
