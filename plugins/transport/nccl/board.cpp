// Sockets of board.hpp: short connections, one question each.
#include "board.hpp"

#include <tenon/error.hpp>
#include <transport_common/addresses.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

namespace tenon::nccl_transport {
namespace {

using Time = std::chrono::steady_clock::time_point;
constexpr std::size_t kLongest = 4096;
/// Limit on a stranger that connects and sends nothing.
constexpr auto kSilence = std::chrono::seconds(5);
constexpr std::size_t kConnections = 256;

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int left_ms(Time limit) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<long>(left.count(), 0, 1 << 30));
}

bool ready(int fd, short events, Time limit) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  while (true) {
    const int count = ::poll(&entry, 1, left_ms(limit));
    if (count > 0) return true;
    if (std::chrono::steady_clock::now() >= limit) return false;
  }
}

/// Listens on all addresses: with IPv6, whose sockets also accept IPv4, if the machine has it.
Socket listen_everywhere(std::uint16_t& port) {
  int error = 0;
  for (const int family : {AF_INET6, AF_INET}) {
    Socket listener(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    const int off = 0;
    if (family == AF_INET6)
      static_cast<void>(::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off));
    if (listener.get() < 0 || ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(listener.get(), SOMAXCONN) != 0) {
      error = errno;
      continue;
    }
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port = ntohs(family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                    : reinterpret_cast<const sockaddr_in&>(address).sin_port);
    return listener;
  }
  fail_config(fmt::format("transport.nccl: cannot listen on any port: {}", std::strerror(error)));
}

/// Returns a connected socket, or -1 with errno set.
Socket reach(const std::string& address, std::uint16_t port, Time limit) {
  sockaddr_storage to{};
  socklen_t length = 0;
  auto& four = reinterpret_cast<sockaddr_in&>(to);
  auto& six = reinterpret_cast<sockaddr_in6&>(to);
  if (inet_pton(AF_INET, address.c_str(), &four.sin_addr) == 1) {
    to.ss_family = AF_INET;
    four.sin_port = htons(port);
    length = sizeof four;
  } else if (inet_pton(AF_INET6, address.c_str(), &six.sin6_addr) == 1) {
    to.ss_family = AF_INET6;
    six.sin6_port = htons(port);
    length = sizeof six;
  }
  Socket made(::socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (::connect(made.get(), reinterpret_cast<sockaddr*>(&to), length) == 0) return made;
  if (errno != EINPROGRESS) return Socket();
  if (!ready(made.get(), POLLOUT, limit)) {
    errno = ETIMEDOUT;
    return Socket();
  }
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) return made;
  errno = error;
  return Socket();
}

void send_all(int fd, std::string_view text, Time limit) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      text.remove_prefix(sent);
    } else if (errno != EAGAIN || !ready(fd, POLLOUT, limit)) {
      return;
    }
  }
}

}  // namespace

std::string BoardPlace::text() const {
  return fmt::format("{} {} {}", place, port, fmt::join(addresses, ","));
}

BoardPlace BoardPlace::read(std::string_view text, int rank) {
  BoardPlace found;
  const auto first = text.find(' '), second = text.find(' ', first + 1);
  const auto refuse = [&] {
    fail_run(
        fmt::format("transport.nccl: rank {} announced '{}', which is no place to ask; all ranks run the "
                    "same program and transport",
                    rank, text.substr(0, 200)));
  };
  if (first == std::string_view::npos || second == std::string_view::npos) refuse();
  const std::string_view port = text.substr(first + 1, second - first - 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), found.port);
  if (error != std::errc() || end != port.data() + port.size() || found.port == 0) refuse();
  found.place = text.substr(0, first);
  std::string_view rest = text.substr(second + 1);
  while (!rest.empty()) {
    const auto comma = std::min(rest.find(','), rest.size());
    found.addresses.emplace_back(rest.substr(0, comma));
    if (!transport_common::is_address(found.addresses.back())) refuse();
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (found.place == transport_common::this_place())
    found.addresses.insert(found.addresses.begin(), {"127.0.0.1", "::1"});
  return found;
}

Board::Board(std::string token, const std::string& interface,
             std::function<std::string(std::string_view)> answer)
    : token_(std::move(token)), answer_(std::move(answer)) {
  place_.place = transport_common::this_place();
  place_.addresses = transport_common::machine_addresses(interface);
  if (!interface.empty() && place_.addresses.empty()) {
    fail_config(fmt::format("transport.interface: '{}' is no interface of this machine, or has no address",
                            interface));
  }
  Socket listener = listen_everywhere(place_.port);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  listener_ = listener.release();
  thread_ = std::thread([this] { serve(); });
}

Board::~Board() {
  ended_ = true;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_, &one, sizeof one));
  thread_.join();
  ::close(listener_);
  ::close(wake_);
}

void Board::serve() {
  struct Connection {
    Socket socket;
    std::string line;
    Time limit;
  };
  std::vector<Connection> open;
  std::vector<pollfd> waits;
  while (!ended_) {
    const Time now = std::chrono::steady_clock::now();
    std::erase_if(open, [&](const Connection& connection) { return connection.limit < now; });
    waits.assign({{wake_, POLLIN, 0}, {listener_, POLLIN, 0}});
    for (const Connection& connection : open) waits.push_back({connection.socket.get(), POLLIN, 0});
    ::poll(waits.data(), waits.size(), open.empty() ? -1 : 1000);
    for (std::size_t i = open.size(); i-- > 0;) {
      if (waits[i + 2].revents == 0) continue;
      Connection& connection = open[i];
      std::array<char, 1024> bytes{};
      const ssize_t count = ::recv(connection.socket.get(), bytes.data(), bytes.size(), 0);
      if (count > 0) connection.line.append(bytes.data(), count);
      const auto end = connection.line.find('\n');
      const std::string_view line = std::string_view(connection.line).substr(0, end);
      const bool whole = end != std::string::npos;
      if (whole && line.substr(0, line.find(' ')) == token_ && line.find(' ') != std::string_view::npos) {
        send_all(connection.socket.get(), answer_(line.substr(line.find(' ') + 1)) + "\n",
                 std::chrono::steady_clock::now() + kSilence);
      }
      if (whole || count <= 0 || connection.line.size() > kLongest)
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if ((waits[1].revents & POLLIN) != 0) {
      Socket accepted(::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (accepted.get() >= 0 && open.size() < kConnections)
        open.push_back({std::move(accepted), {}, std::chrono::steady_clock::now() + kSilence});
    }
  }
}

Answer ask(BoardPlace& place, std::string_view token, std::string_view question, double seconds) {
  const Time limit =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  Answer answer;
  answer.text = "it told no address";
  for (std::size_t i = 0; i < place.addresses.size(); ++i) {
    const Socket socket = reach(place.addresses[i], place.port, limit);
    if (socket.get() < 0) {
      answer.text = std::strerror(errno);
      continue;
    }
    send_all(socket.get(), fmt::format("{} {}\n", token, question), limit);
    std::string text;
    while (text.find('\n') == std::string::npos) {
      std::array<char, 1024> bytes{};
      const ssize_t count = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
      if (count > 0) {
        text.append(bytes.data(), count);
      } else if (count == 0 || errno != EAGAIN || !ready(socket.get(), POLLIN, limit)) {
        break;
      }
    }
    const auto end = text.find('\n');
    if (end == std::string::npos) {
      answer.text = "it does not answer";
      continue;
    }
    if (i > 0)
      std::rotate(place.addresses.begin(), place.addresses.begin() + static_cast<std::ptrdiff_t>(i),
                  place.addresses.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return {true, text.substr(0, end)};
  }
  return answer;
}

}  // namespace tenon::nccl_transport
