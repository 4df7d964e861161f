// Communicators of a rank as it meets them. A traced one watches its traffic, and the transport below does
// all the work. It counts its thread's waits in the rank's time account, apart for late ranks and for bytes;
// shows them as spans, and the time that a started transfer leaves its thread free on the track "overlap";
// and lets faults happen.
#pragma once

#include "comm/staged_communicator.hpp"
#include "graph/pass_place.hpp"
#include "loop/faults.hpp"
#include "loop/spans.hpp"
#include "loop/time_account.hpp"

#include <tenon/device.hpp>
#include <tenon/transport.hpp>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::train {

/// Each may be null; all outlive the communicator.
struct CommunicatorWatch {
  SpanRecorder* spans = nullptr;
  TimeAccount* account = nullptr;
  Faults* faults = nullptr;
  graph::PassPlaces* passes = nullptr;  ///< where a node's pass may wait in this communicator
};

/// `members` are world ranks; `name` becomes part of the spans' names.
std::unique_ptr<Communicator> traced(std::unique_ptr<Communicator> inner, const CommunicatorWatch& watch,
                                     std::span<const int> members, std::string_view name);

// Communicators of a rank whose tensors are in its device's memory: as the transport opened them where it
// reaches that memory, staged through the host's where it does not.

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
