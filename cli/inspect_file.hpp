// What `tenon inspect FILE` finds out: what the file's tag says, read without running any of its code, and
// what loading it in a child process adds.
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
  std::string reason;  ///< why this program cannot load it; "" = nothing speaks against it
};

/// Reads the tag; a file without one is Error(kPlugin). With `load`, a file that fits this program is loaded
/// in a child process as well.
FileFacts look_at_file(const std::filesystem::path& file, bool load);

/// Text and Markdown say where reading ended and running began; JSON has "loaded".
std::string print_file(const FileFacts& facts, Format format);

}  // namespace tenon::cli
