// A communicator for tensors in the memory of a device that the transport below does not reach: views of that
// memory travel through buffers of the host, those of the host go through as they are.
#pragma once

#include <tenon/device.hpp>
#include <tenon/transport.hpp>

#include <memory>

namespace tenon::comm {

/// Data that an operation reads leaves the device when it starts, so its tensor may be overwritten as early
/// as one in the host's memory. Data that it writes reaches the device within wait(). Buffers grow until the
/// largest operations have been seen and are kept then: a steady step allocates nothing. The device outlives
/// it.
std::unique_ptr<Communicator> staged(std::unique_ptr<Communicator> inner, Device& device);

}  // namespace tenon::comm
