// Looks at a plugin file in a fresh child process, so that a crash, an exit or a hang of it costs nothing.
// Used by `tenon inspect FILE` and `tenon doctor`. The child is the program tenon_probe (probe_main.cpp).
#pragma once

#include "plugin/description.hpp"

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

namespace tenon::plugin {

struct ProbeRequest {
  std::filesystem::path file;
  std::chrono::milliseconds time_limit{10000};
  std::filesystem::path program{};  ///< empty = the tenon_probe of this installation
};

struct ProbeResult {
  bool ok = false;
  PluginDescription description;  ///< when ok
  std::string
      reason;  ///< when not: the loader's text, or how the child ended, at which stage, and its last words
};

/// Loads, describes, initialises and shuts down the plugin in a child. Does not throw for anything the plugin
/// does; Error(kRun) when no child can be started.
ProbeResult probe_plugin(const ProbeRequest& request);

/// A program of libexec/tenon of this core's installation or build tree, e.g. "tenon_probe".
std::filesystem::path helper_program(std::string_view name);

}  // namespace tenon::plugin
