// Queues, writing and reading of socket_port.hpp.
#include "socket_port.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <linux/sockios.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tenon::socket_transport {

namespace {

constexpr std::size_t kFirstFrames = 64;
constexpr std::size_t kPieces = 32;  // of one system call
// A fast peer must not starve the others.
constexpr std::size_t kBytesOfOneTurn = 4 << 20;
constexpr std::size_t kNowhere = 64 << 10;

class Nobody final : public FramePort::Events {
 public:
  FramePort::Landing begin(int, const FrameHeader&) override { return {}; }
  void end(int) override {}
  void sent(const void*) override {}
  void lost(int, const std::string&) override {}
};

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

SocketPort::SocketPort(SocketMesh mesh)
    : mesh_(std::move(mesh)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      peers_(mesh_.peers.size()),
      polled_(mesh_.peers.size() + 1),
      nowhere_(kNowhere) {
  if (!wake_) fail_run(fmt::format("transport.socket: no event descriptor: {}", std::strerror(errno)));
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    peers_[rank].fd = mesh_.peers[rank].get();
    if (peers_[rank].fd >= 0) peers_[rank].queue.resize(kFirstFrames);
  }
  orphans_.reserve(kFirstFrames);
}

SocketPort::~SocketPort() = default;

void SocketPort::wake() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
}

SocketPort::Outgoing& SocketPort::push(Peer& peer) {
  if (peer.waiting == peer.queue.size()) {
    std::rotate(peer.queue.begin(), peer.queue.begin() + static_cast<std::ptrdiff_t>(peer.first),
                peer.queue.end());
    peer.first = 0;
    peer.queue.resize(2 * peer.queue.size());
  }
  Outgoing& frame = peer.queue[(peer.first + peer.waiting) % peer.queue.size()];
  ++peer.waiting;
  return frame;
}

void SocketPort::pop(Peer& peer) {
  peer.first = (peer.first + 1) % peer.queue.size();
  --peer.waiting;
  peer.sent = 0;
}

void SocketPort::send(int to, const FrameHeader& header, std::span<const std::byte> payload,
                      const void* owner) {
  Peer& peer = at(to);
  if (peer.fd < 0) {
    if (owner != nullptr) orphans_.push_back(owner);
    return;
  }
  Outgoing& frame = push(peer);
  frame.header = write_frame_header(header);
  frame.bytes = payload.size();
  frame.owner = owner;
  frame.dropped = false;
  frame.payload = owner != nullptr ? payload.data() : nullptr;
  frame.large.clear();
  if (owner != nullptr) return;
  if (payload.size() <= frame.small.size()) {
    std::copy(payload.begin(), payload.end(), frame.small.begin());
  } else {
    frame.large.assign(payload.begin(), payload.end());
  }
}

void SocketPort::poll(Events& events, double seconds) {
  while (!orphans_.empty()) {
    const void* const owner = orphans_.back();
    orphans_.pop_back();
    events.sent(owner);
  }
  write_all(events);
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    polled_[rank] = {.fd = peers_[rank].fd, .events = POLLIN, .revents = 0};
    if (peers_[rank].blocked) polled_[rank].events |= POLLOUT;
    // Frames that events() queued while writing are sent before the thread sleeps.
    if (peers_[rank].waiting > 0 && !peers_[rank].blocked) seconds = 0;
  }
  polled_.back() = {.fd = wake_.get(), .events = POLLIN, .revents = 0};
  if (!orphans_.empty()) seconds = 0;
  if (::poll(polled_.data(), polled_.size(), milliseconds_until(in_seconds(seconds))) <= 0) return;
  if (polled_.back().revents != 0) {
    std::uint64_t ignored = 0;
    static_cast<void>(!::read(wake_.get(), &ignored, sizeof ignored));
  }
  for (int rank = 0; rank < ranks(); ++rank) {
    if ((polled_[rank].revents & POLLOUT) != 0) at(rank).blocked = false;
    if ((polled_[rank].revents & (POLLIN | POLLERR | POLLHUP)) != 0) read(events, rank);
  }
  write_all(events);
}

void SocketPort::write_all(Events& events) {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (at(rank).fd >= 0 && at(rank).waiting > 0 && !at(rank).blocked) write(events, rank);
  }
}

void SocketPort::write(Events& events, int rank) {
  Peer& peer = at(rank);
  std::size_t turn = 0;
  while (peer.waiting > 0 && turn < kBytesOfOneTurn) {
    std::array<iovec, kPieces> pieces;
    std::size_t count = 0, skip = peer.sent;
    const auto add = [&](const std::byte* data, std::size_t bytes) {
      const std::size_t begin = std::min(skip, bytes);
      skip -= begin;
      if (begin < bytes) pieces[count++] = {const_cast<std::byte*>(data) + begin, bytes - begin};
    };
    for (std::size_t i = 0; i < peer.waiting && count + 2 <= kPieces; ++i) {
      const Outgoing& frame = peer.queue[(peer.first + i) % peer.queue.size()];
      if (frame.dropped) continue;
      add(frame.header.data(), frame.header.size());
      add(frame.bytes_of_payload(), frame.bytes);
    }
    ssize_t left = 0;
    if (count > 0) {
      msghdr message{};
      message.msg_iov = pieces.data();
      message.msg_iovlen = count;
      left = ::sendmsg(peer.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (left < 0) {
        if (would_block(errno)) {
          peer.blocked = errno != EINTR;
          return;
        }
        return lose(events, rank, fmt::format("broke: {}", std::strerror(errno)));
      }
    }
    turn += left;
    std::size_t moved = left;
    while (peer.waiting > 0) {
      const Outgoing& frame = peer.queue[peer.first];
      const std::size_t whole = frame.dropped ? 0 : frame.header.size() + frame.bytes;
      if (peer.sent + moved < whole) {
        peer.sent += moved;
        break;
      }
      moved -= whole - (frame.dropped ? 0 : peer.sent);
      const void* const owner = frame.dropped ? nullptr : frame.owner;
      pop(peer);
      if (owner != nullptr) events.sent(owner);
      if (moved == 0 && (peer.waiting == 0 || !peer.queue[peer.first].dropped)) break;
    }
  }
}

void SocketPort::read(Events& events, int rank) {
  Peer& peer = at(rank);
  std::size_t turn = 0;
  while (peer.fd >= 0 && turn < kBytesOfOneTurn) {
    // The rest of the payload, and the next header.
    std::array<iovec, 2> pieces;
    std::size_t count = 0, wanted = 0;
    if (peer.in_payload) {
      wanted = peer.frame.bytes - peer.payload_bytes;
      if (peer.landing.to == nullptr) wanted = std::min(wanted, nowhere_.size());
      pieces[count++] = {peer.landing.to ? peer.landing.to + peer.payload_bytes : nowhere_.data(), wanted};
    }
    const bool whole = !peer.in_payload || wanted == peer.frame.bytes - peer.payload_bytes;
    if (whole)
      pieces[count++] = {peer.header.data() + peer.header_bytes, peer.header.size() - peer.header_bytes};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t got = ::recvmsg(peer.fd, &message, MSG_DONTWAIT);
    if (got < 0) {
      if (would_block(errno)) return;
      return lose(events, rank, fmt::format("broke: {}", std::strerror(errno)));
    }
    if (got == 0) return lose(events, rank, "closed");
    turn += got;
    std::size_t rest = got;
    if (peer.in_payload) {
      const std::size_t payload = std::min(rest, wanted);
      peer.payload_bytes += payload;
      rest -= payload;
      if (peer.payload_bytes < peer.frame.bytes) continue;
      part(events, rank);
    }
    peer.header_bytes += rest;
    if (peer.header_bytes == peer.header.size() && !take_header(events, rank)) return;
  }
}

bool SocketPort::take_header(Events& events, int rank) {
  Peer& peer = at(rank);
  peer.header_bytes = 0;
  if (const std::string wrong = read_frame_header(peer.header, peer.frame); !wrong.empty()) {
    lose(events, rank, "carries something else: " + wrong);
    return false;
  }
  peer.landing = events.begin(rank, peer.frame);
  peer.payload_bytes = 0;
  peer.in_payload = true;
  if (peer.frame.bytes == 0) part(events, rank);
  return true;
}

// The frame is complete.
void SocketPort::part(Events& events, int rank) {
  Peer& peer = at(rank);
  peer.in_payload = false;
  peer.landing = {};
  if (peer.frame.kind == FrameKind::kBye) peer.said_bye = true;
  events.end(rank);
}

void SocketPort::lose(Events& events, int rank, const std::string& why) {
  Peer& peer = at(rank);
  peer.fd = -1;
  peer.blocked = false;
  mesh_.peers[rank].reset();
  if (!peer.said_bye) events.lost(rank, why);
  for (; peer.waiting > 0; pop(peer)) {
    const Outgoing& frame = peer.queue[peer.first];
    if (frame.owner != nullptr && !frame.dropped) orphans_.push_back(frame.owner);
  }
}

void SocketPort::release(const void* owner) {
  std::erase(orphans_, owner);
  for (Peer& peer : peers_) {
    if (peer.landing.owner == owner) peer.landing = {};
    for (std::size_t i = 0; i < peer.waiting; ++i) {
      Outgoing& frame = peer.queue[(peer.first + i) % peer.queue.size()];
      if (frame.owner != owner) continue;
      if (i == 0 && peer.sent > 0) {
        // The peer expects the rest of the frame; its bytes no longer matter.
        frame.large.assign(frame.bytes, std::byte{});
        frame.payload = nullptr;
      } else {
        frame.dropped = true;
      }
      frame.owner = nullptr;
    }
  }
}

void SocketPort::close(double seconds) {
  Nobody nobody;
  const Time limit = in_seconds(seconds);
  const auto queued = [&] {
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const Peer& peer) { return peer.fd >= 0 && peer.waiting > 0; });
  };
  for (Peer& peer : peers_) peer.landing = {};
  while (queued() && std::chrono::steady_clock::now() < limit) poll(nobody, 0.05);
  for (const Peer& peer : peers_) {
    if (peer.fd >= 0) ::shutdown(peer.fd, SHUT_WR);
  }
  // Closing a connection with unacknowledged bytes could lose them.
  const auto unacknowledged = [&] {
    return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
      int bytes = 0;
      return peer.fd >= 0 && ::ioctl(peer.fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
    });
  };
  while (unacknowledged() && std::chrono::steady_clock::now() < limit) poll(nobody, 0.001);
  for (Descriptor& peer : mesh_.peers) peer.reset();
  for (Peer& peer : peers_) peer.fd = -1;
}

}  // namespace tenon::socket_transport
