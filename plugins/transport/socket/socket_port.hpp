// Frames over the connections of a mesh: a queue for each peer written with scatter-gather straight from the
// tensors, payloads read straight into their destination. Non-blocking; one thread, except for wake().
#pragma once

#include "socket_mesh.hpp"

#include <tenon/ring/transport.hpp>

#include <poll.h>

#include <array>
#include <string>
#include <vector>

namespace tenon::socket_transport {

class SocketPort final : public FramePort {
 public:
  explicit SocketPort(SocketMesh mesh);
  ~SocketPort() override;

  int rank() const override { return mesh_.rank; }
  int ranks() const override { return static_cast<int>(mesh_.peers.size()); }
  void send(int to, const FrameHeader& header, std::span<const std::byte> payload,
            const void* owner) override;
  void poll(Events& events, double seconds) override;
  void wake() override;
  void release(const void* owner) override;
  void close(double seconds) override;

 private:
  struct Outgoing {
    FrameHeaderBytes header;
    const std::byte* payload = nullptr;  // null: the payload is in `small` or `large`
    std::size_t bytes = 0;
    const void* owner = nullptr;
    bool dropped = false;
    // Payloads without owner: typical ones, and reasons of failures.
    std::array<std::byte, 256> small{};
    std::vector<std::byte> large;
    const std::byte* bytes_of_payload() const {
      return payload != nullptr ? payload : large.empty() ? small.data() : large.data();
    }
  };
  struct Peer {
    int fd = -1;  // -1: gone, or this process
    bool said_bye = false, blocked = false;
    // A ring buffer: the first of `waiting` frames is at `first`, and `sent` bytes of it are sent.
    std::vector<Outgoing> queue;
    std::size_t first = 0, waiting = 0, sent = 0;
    FrameHeaderBytes header{};
    std::size_t header_bytes = 0;
    bool in_payload = false;
    FrameHeader frame;
    Landing landing;
    std::size_t payload_bytes = 0;
  };

  Peer& at(int peer) { return peers_[peer]; }
  Outgoing& push(Peer& peer);
  void pop(Peer& peer);
  void write(Events& events, int peer);
  void write_all(Events& events);
  void read(Events& events, int peer);
  bool take_header(Events& events, int peer);
  void lose(Events& events, int peer, const std::string& why);
  void part(Events& events, int peer);

  SocketMesh mesh_;
  Descriptor wake_;
  std::vector<Peer> peers_;
  std::vector<pollfd> polled_;        // by rank, then wake_
  std::vector<const void*> orphans_;  // owners of frames for lost peers
  std::vector<std::byte> nowhere_;
};

}  // namespace tenon::socket_transport
