// Dotted keys: "precision.type", "observe[0].type", "sync.\"odd key\"", and "a.+list" where appending is
// allowed. Used by --set, lookups and messages; TOML files are read by toml++ and never come through here.
#pragma once

#include <tenon/config.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN
namespace config {

struct KeyPart {
  std::string key;
  bool append = false;                 ///< written "+key"
  std::vector<std::size_t> indices{};  ///< "key[0][2]"
};

/// Throws Error(kConfig) that starts with `where` (e.g. "--set a..b=1").
std::vector<KeyPart> parse_key_path(std::string_view text, std::string_view where);

bool is_bare_key(std::string_view key);
/// The text as a TOML basic string, quotes included; control characters are escaped.
std::string quoted(std::string_view text);
/// Bytes that are not UTF-8, and control characters, become '?': for comments and one-line messages.
std::string printable(std::string_view text);
bool is_utf8(std::string_view text);
/// `message` after the place where the first key is written that it names and a user wrote, as "run.steps" or
/// as
/// "[run] steps"; unchanged where there is none, or where it begins with a place.
std::string with_place(const Config& config, const std::string& message);

}  // namespace config
TENON_ABI_END
