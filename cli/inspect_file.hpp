// Examination of a file for `tenon inspect FILE`: its tag, read without running any of its code, and the
// description from loading it in a child process.
#pragma once

#include "inspect_print.hpp"

#include "plugin/abi_tag.hpp"
#include "plugin/description.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace tenon::cli {

struct FileFacts {
  std::filesystem::path file;  ///< canonical
  plugin::AbiTag tag;
  std::optional<plugin::PluginDescription> description;  ///< present when it was loaded
  std::string reason;  ///< why this program cannot load it; "" = it can as far as is known
};

/// Reads the tag. Throws Error(kPlugin) for a file without one. With `load`, also loads a file that fits this
/// program in a child process.
FileFacts look_at_file(const std::filesystem::path& file, bool load);

/// Text and Markdown show which facts were read and which come from loading; JSON has "loaded".
std::string print_file(const FileFacts& facts, Format format);

}  // namespace tenon::cli
