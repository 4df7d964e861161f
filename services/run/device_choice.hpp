// `[device] type = "auto"`: the device that is preferred among those that can be used here.
#pragma once

#include <tenon/config.hpp>
#include <tenon/registry.hpp>

#include <string>

namespace tenon::train {

struct DeviceChoice {
  Config config;    ///< names a device
  std::string why;  ///< "" where the configuration named it itself
};

/// Asks every device component on offer, with its default options. Throws Error(kConfig) that says why each
/// cannot be used where none can.
DeviceChoice choose_device(const Config& config, Registry& registry);

}  // namespace tenon::train
