// Reads TOML text into a Value. The only user of toml++.
#pragma once

#include <tenon/config.hpp>

#include <string>
#include <string_view>

TENON_ABI_BEGIN
namespace config {

/// Throws Error(kConfig) "<name>:<line>:<column>: ..." on bad syntax, dates, and nesting beyond 64 levels.
Value read_toml(std::string_view text, const std::string& name);

}  // namespace config
TENON_ABI_END
