// A plugin's descriptor. It is checked before anything in it is used: sizes first, then mandatory texts,
// components, options. Pointers that are not null are taken to be valid; a plugin that lies about them
// crashes, and is found by the probe. A description is a checked descriptor as data that owns its texts: what
// `tenon inspect` prints, whether the plugin is loaded in this process or was looked at by the probe.
#pragma once

#include <tenon/plugin_abi.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::plugin {

/// The first thing that is wrong, "" when nothing is. Ends without a full stop.
std::string descriptor_problem(const tenon_plugin_v1_t& plugin);

/// A text of PluginInfo::needs, "acme.rope >= 0.2" or "acme.rope".
struct Need {
  std::string id;
  std::string least;  ///< "" = any version
};
/// nullopt where the text has another form.
std::optional<Need> parse_need(std::string_view text);
/// Whether version `have` is at least `least`, number by number: "0.10.0" after "0.9".
bool is_version_at_least(std::string_view have, std::string_view least);

/// "vendor" of "vendor.name".
std::string_view vendor_of(std::string_view plugin_id);
/// "optimizer.lion", as messages and `tenon inspect` say it.
std::string component_name(std::string_view kind, std::string_view id);

// This is done when a plugin is loaded, on syntax alone: the few TOML forms of defaults are read here, so
// that loading needs no TOML library.

/// Why `spec.default_toml` (not null) is no value of the spec's type, range and choices; "" when it is one.
/// Forms: true / false; decimal, hexadecimal, octal and binary integers; reals with inf and nan; "basic" and
/// 'literal' strings on one line; [lists] of those.
std::string default_problem(const tenon_option_v1& spec);

struct OptionDescription {
  std::string name;
  std::uint32_t type = 0;  ///< tenon_option_type
  std::uint32_t flags = 0;
  std::optional<std::string> default_toml;
  double min = 0, max = 0;  ///< NaN = open
  std::vector<std::string> choices;
  std::string unit, doc, since, component_kind;
  std::vector<std::string> old_names;
  std::vector<OptionDescription> section;  ///< of sections and tables: what each may hold
  std::uint32_t length = 0;                ///< of a list; 0 = any
};

struct PortDescription {
  std::string name, dtypes, shape, doc;
  std::uint32_t flags = 0;  ///< tenon_port_flags
};

struct ComponentDescription {
  std::string kind, id, summary;
  std::uint32_t maturity = 0;  ///< tenon_maturity
  std::uint64_t capabilities = 0;
  std::vector<std::string> aliases, requirements;
  std::vector<OptionDescription> options;
  std::vector<PortDescription> ports;
};

struct PluginDescription {
  std::string id, version, summary, vendor, licence, url;
  std::vector<std::string> needs;
  std::vector<ComponentDescription> components;
};

/// Copies a descriptor that was checked.
PluginDescription describe(const tenon_plugin_v1_t& plugin);

/// The form in which the probe sends it: one fact per line, its words separated by tabs; tab, newline and
/// backslash in a text are escaped.
std::string to_lines(const PluginDescription& description);
/// Inverse of to_lines; nullopt when the text was not written by it, or breaks off.
std::optional<PluginDescription> from_lines(std::string_view text);

}  // namespace tenon::plugin
