// JSON schemas (draft-07) of the files that users write, for editors: runs, experiments, studies and
// simulations, with every option of every component that the registry offers. A file may be one layer of
// several, so no table and no mandatory option is demanded where another layer may give it; the elements of
// lists are whole. What is true between tables is left to `tenon check`.
#pragma once

#include <tenon/registry.hpp>

#include <string>
#include <vector>

namespace tenon::cli {

/// "run", "experiment", "study", "simulate", "power".
const std::vector<std::string>& schema_names();

struct ConfigSchema {
  std::string json;                   ///< ends with a newline
  std::vector<std::string> left_out;  ///< why a component is not in it, one line each
};

/// Loads every plugin that offers a component of a kind that the file may name. Throws Error(kConfig), with
/// the nearest name, for another name.
ConfigSchema config_schema(const std::string& name, Registry& registry);

}  // namespace tenon::cli
