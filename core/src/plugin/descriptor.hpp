// Checks a plugin's descriptor before anything in it is used: sizes first, then mandatory texts, components,
// options. Pointers that are not null are taken to be valid; a plugin that lies about them crashes, and is
// found by the probe.
#pragma once

#include <tenon/plugin_abi.h>

#include <string>
#include <string_view>

namespace tenon::plugin {

/// The first thing that is wrong, "" when nothing is. Ends without a full stop.
std::string descriptor_problem(const tenon_plugin_v1_t& plugin);

/// "vendor" of "vendor.name".
std::string_view vendor_of(std::string_view plugin_id);
/// "optimizer" of "optimizer/1".
std::string_view kind_name(std::string_view kind);
/// "optimizer.lion", as messages and `tenon inspect` say it.
std::string component_name(std::string_view kind, std::string_view id);

// This is done when a plugin is loaded, on syntax alone: the few TOML forms of defaults are read here, so
// that loading needs no TOML library.

/// Why `spec.default_toml` (not null) is no value of the spec's type, range and choices; "" when it is one.
/// Forms: true / false; decimal, hexadecimal, octal and binary integers; reals with inf and nan; "basic" and
/// 'literal' strings on one line; [lists] of those.
std::string default_problem(const tenon_option_v1& spec);

}  // namespace tenon::plugin
