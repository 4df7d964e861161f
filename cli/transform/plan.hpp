// The configuration of `tenon transform`: the tables [transform] and [plugins], checked. It opens no source
// and makes nothing.
#pragma once

#include "config/run_schema.hpp"

#include <tenon/config.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tenon::transform {

/// A model to read: a folder, and a checkpoint in it or the newest.
struct Source {
  std::string folder;
  std::optional<std::int64_t> step;
};

struct Plan {
  std::string type;  ///< as written: "merge"
  std::vector<Source> sources;
  std::string to;  ///< the folder of the result
  std::unique_ptr<ResolvedOptions> options;
  std::vector<std::string> plugin_paths;  ///< absolute
  std::vector<std::string> warnings;
};

/// Whether a configuration is of this kind: it has the table [transform], and no stages that it is for.
bool is_transform(const Config& config);

/// The tables that such a file may have, with their keys.
std::vector<config::TableSpecs> transform_tables();

/// Throws Error(kConfig) with one line per problem. `path`: the file, which names the folder of the result
/// unless `to`, from the command line, or the file does.
Plan read_plan(const Config& config, const ComponentCatalog& catalog, const std::string& path,
               const std::string& to);

/// Throws Error(kConfig) unless the folder of the result is new and apart from every source: nothing there is
/// written over.
void require_new(const Plan& plan);

}  // namespace tenon::transform
