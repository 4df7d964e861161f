// Looks at a plugin file in a fresh child process, so that a crash, an exit or a hang of it costs nothing.
// Used by `tenon inspect FILE` and `tenon doctor`. The child is the program tenon_probe (probe_main.cpp).
#pragma once

#include "plugin/descriptor.hpp"

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// What the devices of a plugin report of this machine (ComponentFacts), and which sensors its power sources
// find, asked in a child process, too: a driver that crashes or hangs is a finding.

struct Probed {
  std::string claim;
  bool holds = false;
  std::string text;
};

struct DeviceFindings {
  std::string component;  ///< "device.cuda"
  std::string off;        ///< why it cannot be used here; "" = it can
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<Probed> probes;
};

struct SensorFindings {
  std::string component;  ///< "power.rapl"
  std::string absent;     ///< why this machine has none for it; "" = it is open
  std::string sensor;     ///< PowerSourceInfo
  bool measured = false;  ///< else modelled
  bool watts = false;     ///< else a share
  double rated = 0;
};

struct PluginFindings {
  std::vector<DeviceFindings> devices;
  std::vector<SensorFindings> sensors;
  std::string failure;  ///< of asking: how the child ended
};

/// Opens every device of the file that can be used, and every power source that needs no options.
PluginFindings ask_hardware(const std::filesystem::path& file);

/// The child's part: answers on descriptor 3, line by line.
void answer_hardware(const std::string& file, void (*send)(std::string_view));

}  // namespace tenon::plugin
