// A descriptor as data that owns its texts: what `tenon inspect` prints, whether the plugin is loaded in this
// process or was looked at by the probe. The line form is how the probe sends it.
#pragma once

#include <tenon/plugin_abi.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::plugin {

struct OptionDescription {
  std::string name;
  std::uint32_t type = 0;  ///< tenon_option_type
  std::uint32_t flags = 0;
  std::optional<std::string> default_toml;
  double min = 0, max = 0;  ///< NaN = open
  std::vector<std::string> choices;
  std::string unit, doc, since, component_kind;
  std::vector<std::string> old_names;
  std::vector<OptionDescription> section;  ///< of a sections option: what its tables may hold
};

struct ComponentDescription {
  std::string kind, id, summary;
  std::uint32_t maturity = 0;  ///< tenon_maturity
  std::uint64_t capabilities = 0;
  std::vector<std::string> aliases, requirements;
  std::vector<OptionDescription> options;
};

struct PluginDescription {
  std::string id, version, summary, vendor, licence, url;
  std::vector<ComponentDescription> components;
};

/// Copies a descriptor that was checked.
PluginDescription describe(const tenon_plugin_v1_t& plugin);

/// One fact per line, its words separated by tabs; tab, newline and backslash in a text are escaped.
std::string to_lines(const PluginDescription& description);
/// Inverse of to_lines; nullopt when the text was not written by it, or breaks off.
std::optional<PluginDescription> from_lines(std::string_view text);

}  // namespace tenon::plugin
