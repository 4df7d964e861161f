// Checks that the default of an option spec is a value that the spec itself would accept. This is done when a
// plugin is loaded, on syntax alone: the few TOML forms of defaults are read here, so that loading needs no
// TOML library.
#pragma once

#include <tenon/neck.h>

#include <string>

namespace tenon::plugin {

/// Why `spec.default_toml` (not null) is no value of the spec's type, range and choices; "" when it is one.
/// Forms: true / false; decimal, hexadecimal, octal and binary integers; reals with inf and nan; "basic" and
/// 'literal' strings on one line; [lists] of those.
std::string default_problem(const tenon_option_v1& spec);

}  // namespace tenon::plugin
