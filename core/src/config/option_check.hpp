// One value against one option spec: type, range, choices. Wording of these errors lives here and is tested
// as text.
#pragma once

#include <tenon/config.hpp>

#include <optional>
#include <string>
#include <vector>

TENON_ABI_BEGIN
namespace config {

/// A value that passed, as the component reads it and as the resolved file shows it (integers of a real
/// option are reals there).
struct CheckedValue {
  ResolvedOptions::Datum datum;
  Value shown;
};

/// Empty when problems were added. Not for component options.
std::optional<CheckedValue> check_value(const tenon_option_v1& spec, const Value& value,
                                        const std::string& owner, std::vector<std::string>& problems);

/// "a whole number", "a number from 0 to 1 s", "one of 'rne', 'sr'", "a list of numbers".
std::string expectation(const tenon_option_v1& spec);

/// "configs/x.toml:3:1: " or "" for a value from nowhere.
std::string place(const Origin& origin);

}  // namespace config
TENON_ABI_END
