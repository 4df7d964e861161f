// Communicators of a rank whose tensors are in its device's memory: as the transport opened them where it
// reaches that memory, staged through the host's where it does not.
#pragma once

#include "comm/staged_communicator.hpp"

#include <tenon/device.hpp>
#include <tenon/transport.hpp>

#include <memory>
#include <utility>

namespace tenon::train {

inline DeviceTransport* device_transport(Transport& transport) {
  return static_cast<DeviceTransport*>(transport.query(DeviceTransport::kId));
}

/// `opened` by `transport`, for views in the memory of `device`, which outlives it, and in that of the host.
inline std::unique_ptr<Communicator> for_device(std::unique_ptr<Communicator> opened, Transport& transport,
                                                Device& device) {
  if (device.space() == MemorySpace::kHost || device_transport(transport) != nullptr) return opened;
  return comm::staged(std::move(opened), device);
}

}  // namespace tenon::train
