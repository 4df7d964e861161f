// Output of `tenon inspect` and `tenon doctor`, as text, Markdown or JSON.
#pragma once

#include "plugin/description.hpp"

#include <tenon/registry.hpp>

#include <string>
#include <vector>

namespace tenon::cli {

enum class Format { kText, kMarkdown, kJson };

/// All known plugins, failed ones with their reason.
std::string print_list(const std::vector<PluginStatus>& plugins, Format format);
std::string print_component(const plugin::ComponentDescription& component,
                            const plugin::PluginDescription& plugin, Format format);
/// A plugin with all its components.
std::string print_plugin(const plugin::PluginDescription& plugin, Format format);

}  // namespace tenon::cli
