// Search places of plugins. Never the working directory: a run must not depend on where it was started.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tenon::plugin {

/// A component whose plugin the build left out of its folder.
struct LeftOut {
  std::string component;  ///< "device.cuda_emulated"
  std::string plugin;     ///< the target of the build: "tenon_device_cuda_emulated"
};

/// One place and its findings.
struct SearchPlace {
  std::string origin;                        ///< "[plugins] paths", "TENON_PLUGIN_PATH", "install folder"
  std::filesystem::path path;                ///< a file or a folder; empty = this origin names none
  std::string outcome;                       ///< "3 plugin files", "no such folder", ...
  std::vector<std::filesystem::path> files;  ///< canonical, sorted
  std::vector<LeftOut> left_out = {};        ///< lines "COMPONENT TARGET" of a file `left_out` in the folder
};

/// The folder that holds the library (or program) with the code of this function.
std::filesystem::path core_folder();
/// All places in order, unvisited: `configured`, TENON_PLUGIN_PATH (split at ':'), the install folder.
std::vector<SearchPlace> search_places(const std::vector<std::string>& configured);
/// Lists the plugin files of a place: itself, or the *.so in the folder (not in folders below it).
void visit(SearchPlace& place);
/// "  origin: path: outcome" per place.
std::string places_text(const std::vector<SearchPlace>& places);

}  // namespace tenon::plugin
