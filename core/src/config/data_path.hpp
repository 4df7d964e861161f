// Finds the files that Tenon ships: configurations, data, templates.
#pragma once

#include <tenon/abi.hpp>

#include <filesystem>

TENON_ABI_BEGIN
namespace config {

struct ShippedFolder {
  std::filesystem::path path;  ///< share/tenon of the installation, or the root of the sources; "" = unknown
  bool is_source_tree = false;
};

/// Found from the place of the core's library alone, so that an installation can be moved as a whole.
ShippedFolder shipped_folder();

}  // namespace config
TENON_ABI_END
