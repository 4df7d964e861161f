// Facts that the devices of a plugin report of this machine (ComponentFacts), asked in a child process as in
// probe.hpp: a driver that crashes or hangs is a finding.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::plugin {

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

struct PluginFindings {
  std::vector<DeviceFindings> devices;
  std::string failure;  ///< of asking: how the child ended
};

/// Opens every device of the file that can be used.
PluginFindings ask_devices(const std::filesystem::path& file);

/// The child's part: answers on descriptor 3, line by line.
void answer_device_facts(const std::string& file, void (*send)(std::string_view));

}  // namespace tenon::plugin
