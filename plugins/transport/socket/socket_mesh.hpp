// A connection between every two processes of a run, established through a rendezvous: every process listens,
// announces its address, connects to all lower ranks and accepts all higher ones. Both ends of a connection
// prove that they belong to the same run before a frame passes.
#pragma once

#include <tenon/transport.hpp>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace tenon::socket_transport {

// An owned file descriptor, and waits on it with a limit.

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

using Time = std::chrono::steady_clock::time_point;

inline Time in_seconds(double seconds) {
  constexpr double kYear = 3.2e7;
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(std::clamp(seconds, 0.0, kYear)));
}
/// Rounded up, so that a wait does not end early.
inline int milliseconds_until(Time limit) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, 1 << 30));
}
/// Returns false when the limit passed first.
inline bool wait_for(int fd, short events, Time limit) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  while (true) {
    const int ready = ::poll(&entry, 1, milliseconds_until(limit));
    if (ready > 0) return true;
    if (std::chrono::steady_clock::now() >= limit) return false;
  }
}

struct MeshSettings {
  std::string address = {};    ///< numeric or a host name; "" = all
  std::string interface = {};  ///< "" = all
  double deadline_s = 60;
};

struct SocketMesh {
  int rank = 0;
  std::vector<Descriptor> peers;  ///< by rank; none for its own
};

/// Collective. Throws DeadlineError that names the ranks that did not come.
SocketMesh connect_mesh(Rendezvous& rendezvous, const MeshSettings& settings);

}  // namespace tenon::socket_transport
