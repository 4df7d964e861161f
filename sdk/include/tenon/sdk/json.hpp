// JSON of other programs as a value: settings of models, lines of conversations.
#pragma once

#include <tenon/config.hpp>

#include <string>
#include <string_view>

TENON_ABI_BEGIN

/// JSON text as a value. Members and items that are null are left out. `label` begins messages and is the
/// origin of every value. Throws Error(kConfig) for text that is no JSON, for duplicate keys, and for more
/// than 64 levels.
Value parse_json(std::string_view text, const std::string& label);

TENON_ABI_END
