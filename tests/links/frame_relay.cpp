// A bad cable: passes Ethernet frames from one interface to another and back, and loses, delays or stops them
// on the way. The processes at both ends keep the TCP of their kernel, which retransmits lost frames; nothing
// of the kernel's own traffic control is needed but veth pairs and packet sockets.
//
// frame_relay IF_A IF_B [LOSS_PERCENT] [DELAY_MS]
//   Of A's frames LOSS_PERCENT are lost, and the others come DELAY_MS late. SIGUSR1 stops those of A, SIGUSR2
//   those of B.
// frame_relay whole IF
//   Makes IF send whole frames with checksums: a packet socket would hand on what hardware is meant to cut
//   into pieces later.
#include <arpa/inet.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Frame {
  Clock::time_point due;
  std::vector<char> bytes;
};

std::array<volatile std::sig_atomic_t, 2> stopped{};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "frame_relay: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

int open_interface(const char* name) {
  const unsigned index = if_nametoindex(name);
  if (index == 0) {
    fail(std::string("there is no interface ") + name);
  }
  const int handle = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(index);
  if (handle < 0 || bind(handle, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    fail(std::string("cannot read the frames of ") + name);
  }
  return handle;
}

int send_whole_frames(const char* name) {
  const int handle = socket(AF_INET, SOCK_DGRAM, 0);
  for (const unsigned command : {ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO}) {
    ethtool_value value{command, 0};
    ifreq request{};
    std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&value);
    // A feature that is off already, or that follows from another, may be refused: only checksums must be
    // whole.
    if (ioctl(handle, SIOCETHTOOL, &request) != 0 && command == ETHTOOL_STXCSUM) {
      fail(std::string("cannot turn off the offloads of ") + name);
    }
  }
  return 0;
}

// Moves frames from `handle` into `queue`, except lost ones.
void receive(int handle, bool stop, double loss, std::chrono::milliseconds delay, std::minstd_rand& random,
             std::deque<Frame>& queue) {
  std::array<char, 1 << 16> bytes;
  while (true) {
    sockaddr_ll from{};
    socklen_t length = sizeof from;
    const ssize_t size =
        recvfrom(handle, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (size < 0) {
      return;
    }
    const bool sent_here = from.sll_pkttype == PACKET_OUTGOING;
    if (!sent_here && !stop && std::uniform_real_distribution<>(0, 1)(random) >= loss) {
      queue.push_back({Clock::now() + delay, {bytes.data(), bytes.data() + size}});
    }
  }
}

void send_due(int handle, std::deque<Frame>& queue) {
  for (; !queue.empty() && queue.front().due <= Clock::now(); queue.pop_front()) {
    // A frame that the interface refuses counts as lost.
    [[maybe_unused]] const ssize_t sent =
        send(handle, queue.front().bytes.data(), queue.front().bytes.size(), 0);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count == 3 && std::string_view(words[1]) == "whole") {
    return send_whole_frames(words[2]);
  }
  if (count < 3 || count > 5) {
    std::fprintf(stderr, "usage: frame_relay IF_A IF_B [LOSS_PERCENT] [DELAY_MS] | frame_relay whole IF\n");
    return 2;
  }
  const std::array<double, 2> losses{count > 3 ? std::atof(words[3]) / 100 : 0, 0};
  const std::array<std::chrono::milliseconds, 2> delays{
      std::chrono::milliseconds(count > 4 ? std::atol(words[4]) : 0), std::chrono::milliseconds(0)};
  const std::array<int, 2> handles{open_interface(words[1]), open_interface(words[2])};
  std::signal(SIGUSR1, [](int) { stopped[0] = 1; });
  std::signal(SIGUSR2, [](int) { stopped[1] = 1; });
  std::minstd_rand random(20);
  std::array<std::deque<Frame>, 2> queues;
  std::array<pollfd, 2> waits{pollfd{handles[0], POLLIN, 0}, pollfd{handles[1], POLLIN, 0}};
  while (true) {
    Clock::time_point next = Clock::now() + std::chrono::seconds(1);
    for (const std::deque<Frame>& queue : queues) {
      next = queue.empty() ? next : std::min(next, queue.front().due);
    }
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    poll(waits.data(), waits.size(), static_cast<int>(std::max<decltype(rest)>(rest, 0)));
    for (std::size_t side = 0; side < 2; ++side) {
      receive(handles[side], stopped[side] != 0, losses[side], delays[side], random, queues[side]);
      send_due(handles[1 - side], queues[side]);
    }
  }
}
