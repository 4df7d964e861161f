// Chooses the plugin that serves a `type`. A pure function of what the plugins offer; the registry loads it.
#pragma once

#include "plugin/search.hpp"

#include <tenon/registry.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::plugin {

struct Choice {
  std::size_t plugin = 0;
  std::size_t offer = 0;
};

/// `type` is an id, an alias, or either after "vendor/" or "vendor.name/". An id wins over an alias of the
/// same name, a working plugin over a failed one. Throws as Registry::find says; the message of a miss ends
/// with the places that were searched, and says how to add a plugin that the build left out.
Choice choose(const std::vector<PluginStatus>& plugins, std::string_view kind, std::string_view type,
              const std::vector<SearchPlace>& places);

/// Sorted ids that are offered for exactly this kind by plugins that did not fail.
std::vector<std::string> offered_ids(const std::vector<PluginStatus>& plugins, std::string_view kind);

}  // namespace tenon::plugin
