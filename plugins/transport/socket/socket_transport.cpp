// Connecting of socket_transport.hpp; other calls are forwarded.
#include "socket_transport.hpp"

#include "socket_port.hpp"

#include <tenon/error.hpp>
#include <tenon/ring/check_world.hpp>

#include <algorithm>

namespace tenon::socket_transport {

namespace {

/// A connecting rank is starting up, which takes longer than the steps for which a short deadline is meant.
constexpr double kConnectSeconds = 10;

}  // namespace

SocketTransport::SocketTransport(const Options& options) {
  settings_.address = options.text("address");
  settings_.interface = options.text("interface");
  if (!settings_.address.empty() && !settings_.interface.empty())
    fail_config("transport.address and transport.interface both say where to listen; set one of them");
}

void SocketTransport::connect(const WorldSpec& world) {
  if (ring_) fail_run("transport.socket: connected twice");
  check_process_world(world, "transport.socket");
  settings_.deadline_s = std::max(world.deadline_s, kConnectSeconds);
  ring_ = std::make_unique<RingTransport>(
      std::make_unique<SocketPort>(connect_mesh(*world.rendezvous, settings_)), world, "transport.socket");
}

RingTransport& SocketTransport::ring() const {
  if (!ring_) fail_run("transport.socket: used before connect");
  return *ring_;
}

std::span<const int> SocketTransport::local_ranks() const {
  return ring().local_ranks();
}

std::unique_ptr<Communicator> SocketTransport::open(int world_rank, const GroupSpec& group) {
  return ring().open(world_rank, group);
}

void SocketTransport::cancel(std::string_view reason) {
  if (ring_) ring_->cancel(reason);
}

LinkCounts SocketTransport::counts(int world_rank, Purpose purpose) const {
  return ring_ ? ring_->counts(world_rank, purpose) : LinkCounts{};
}

}  // namespace tenon::socket_transport

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.transport_socket",
                               .version = "0.1.0",
                               .summary = "bytes between ranks that are processes, over TCP"},
             tenon::socket_transport::SocketTransport)
