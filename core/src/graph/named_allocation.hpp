// Allocates memory of a device for something that has a name; where there is none left, the error has the
// name.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <cstddef>
#include <string>

namespace tenon::graph {

/// As Device::allocate.
inline void* allocate_for(Device& device, std::size_t bytes, const std::string& what) {
  try {
    return device.allocate(bytes);
  } catch (const Error& error) {
    throw Error(error.kind(), std::string(error.what()) + " (for " + what + ")");
  }
}

}  // namespace tenon::graph
