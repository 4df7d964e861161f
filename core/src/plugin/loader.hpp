// Loads one plugin file in this process: tag, dlopen, descriptor, init. Each stage refuses with
// Error(kPlugin), and says whether code of the plugin has run by then. A loaded library is pinned and stays
// until the process ends: objects, stored exceptions and thread-local destructors may refer to it
// (docs/plugins/abi.md).
#pragma once

#include "plugin/abi_tag.hpp"

#include <tenon/neck.h>

#include <filesystem>

namespace tenon::plugin {

struct OpenPlugin {
  const tenon_plugin_v1_t* descriptor = nullptr;  ///< valid until the process ends
  AbiTag tag;
  std::filesystem::path file;  ///< canonical
};

/// Reads and compares the tag, then opens the file and checks its descriptor against the tag. Static
/// initialisers of the plugin run here, no other code of it.
OpenPlugin open_plugin(const std::filesystem::path& file, const AbiTag& host = host_abi_tag());

/// Runs init under the guard. `file` is for messages.
void init_plugin(const tenon_plugin_v1_t& descriptor, const std::filesystem::path& file);
/// Runs shutdown under the guard; Error(kPlugin) when it throws.
void shutdown_plugin(const tenon_plugin_v1_t& descriptor);

}  // namespace tenon::plugin
