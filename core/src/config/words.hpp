// Words of a configuration and of messages about it. Dotted keys: "precision.type", "observe[0].type",
// "sync.\"odd key\"", and "a.+list" where appending is allowed; --set and lookups use them, TOML files are
// read by toml++ and never come through here. Texts as TOML and as messages show them. "did you mean ...":
// the candidate nearest to a misspelt word.
#pragma once

#include <tenon/abi.hpp>
#include <tenon/config.hpp>

#include <optional>
#include <span>
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
/// as "[run] steps"; unchanged where there is none, or where it begins with a place.
std::string with_place(const Config& config, const std::string& message);

/// "optimizer" of "optimizer/1".
std::string_view kind_name(std::string_view kind);

/// Edits (insert, delete, replace, transpose two neighbours) between two words; case and '-' for '_' are
/// free. Optimal string alignment distance (Damerau 1964, each part edited once).
int edit_distance(std::string_view a, std::string_view b);

/// The nearest candidate within a third of the word's length (at least one edit), "" when none is near. Ties
/// go to the longest common beginning, then to the earlier candidate.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean 'betas'?", or "" when nothing is near.
std::string suggestion(std::string_view word, std::span<const std::string> candidates);

}  // namespace config
TENON_ABI_END
