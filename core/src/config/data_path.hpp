// Finds what a configuration names by a path, and the files that Tenon ships: configurations, data,
// templates.
#pragma once

#include <tenon/abi.hpp>
#include <tenon/config.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

TENON_ABI_BEGIN
namespace config {

struct ShippedFolder {
  std::filesystem::path path;  ///< share/tenon of the installation, or the root of the sources; "" = unknown
  bool is_source_tree = false;
};

/// Found from the place of the core's library alone, so that an installation can be moved as a whole.
ShippedFolder shipped_folder();

/// Every place where `text` may be, in order; not made absolute, so that messages show them as a user would.
std::vector<std::filesystem::path> places_of(const std::string& text, const Origin& written);

/// resolve_path() of an option's value, by the flags of the option (TENON_OPTION_NAMED, TENON_OPTION_LATER).
/// An empty path and an entry without the name that it needs are returned as they are.
std::string resolve_entry(const std::string& text, const Origin& written, std::uint32_t flags);

/// Ends the message about a file to extend that is not there: the shipped one whose name is nearest, or "".
std::string suggest_shipped(const std::string& text);

}  // namespace config
TENON_ABI_END
