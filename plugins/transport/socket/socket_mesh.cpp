// Listening, connecting and greeting (socket_mesh.hpp).
#include "socket_mesh.hpp"

#include "announcement.hpp"

#include <tenon/error.hpp>
#include <transport_common/addresses.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace tenon::socket_transport {

namespace {

/// Limit per address, so that one of several does not use up the time of the others.
constexpr double kAttemptSeconds = 5;
/// A peer that connects without a greeting is a stranger.
constexpr double kGreetingSeconds = 10;

struct Greeting {
  std::array<char, 8> magic = {'t', 'e', 'n', 'o', 'n', 's', 'o', '1'};
  std::uint32_t rank = 0, ranks = 0;
  std::uint64_t run = 0;
};
static_assert(sizeof(Greeting) == 24);

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const std::string& host, std::uint16_t port, int flags, std::string& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) error = ::gai_strerror(status);
  return {status == 0 ? found : nullptr, [](addrinfo* list) {
            if (list != nullptr) ::freeaddrinfo(list);
          }};
}

void set_option(int fd, int level, int name, int value) {
  static_cast<void>(::setsockopt(fd, level, name, &value, sizeof value));
}

Descriptor try_listen(const addrinfo& where) {
  Descriptor listener(::socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener) return listener;
  if (where.ai_family == AF_INET6) set_option(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(listener.get(), where.ai_addr, where.ai_addrlen) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0)
    return Descriptor();
  return listener;
}

Descriptor listen_at(const MeshSettings& settings, std::vector<std::string>& addresses) {
  std::string error;
  const Addresses found = resolve(settings.address, 0, AI_PASSIVE, error);
  // Listens on all addresses at once if the machine has IPv6, whose sockets also accept IPv4.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* where = found.get(); where != nullptr; where = where->ai_next) {
      if (where->ai_family != family) continue;
      Descriptor listener = try_listen(*where);
      if (!listener) {
        error = std::strerror(errno);
        continue;
      }
      if (!settings.address.empty()) {
        std::array<char, NI_MAXHOST> text{};
        ::getnameinfo(where->ai_addr, where->ai_addrlen, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST);
        addresses = {text.data()};
      }
      return listener;
    }
  }
  fail_config(
      fmt::format("transport.socket: cannot listen at {}: {}; set transport.address to an address of this "
                  "machine, or leave it out",
                  settings.address.empty() ? "any address" : "'" + settings.address + "'", error));
}

std::uint16_t port_of(const Descriptor& listener) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &length);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

bool send_all(int fd, const void* data, std::size_t bytes, Time limit) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, from, bytes, MSG_NOSIGNAL);
    if (sent > 0) {
      from += sent;
      bytes -= static_cast<std::size_t>(sent);
    } else if (errno != EINTR && (errno != EAGAIN || !wait_for(fd, POLLOUT, limit))) {
      return false;
    }
  }
  return true;
}

bool receive_all(int fd, void* data, std::size_t bytes, Time limit) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, to, bytes, 0);
    if (got == 0) return false;
    if (got > 0) {
      to += got;
      bytes -= static_cast<std::size_t>(got);
    } else if (errno != EINTR && (errno != EAGAIN || !wait_for(fd, POLLIN, limit))) {
      return false;
    }
  }
  return true;
}

Descriptor connect_to(const std::string& address, std::uint16_t port, Time limit, std::string& error) {
  const Addresses found = resolve(address, port, AI_NUMERICHOST, error);
  if (!found) return Descriptor();
  Descriptor fd(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    error = std::strerror(errno);
    return fd;
  }
  if (::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0) return fd;
  if (errno == EINPROGRESS) {
    int status = ETIMEDOUT;
    socklen_t length = sizeof status;
    if (wait_for(fd.get(), POLLOUT, limit)) ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &status, &length);
    if (status == 0) return fd;
    errno = status;
  }
  error = std::strerror(errno);
  return Descriptor();
}

// Hashes the text of every rank, so that no two runs have the same identity.
std::uint64_t run_of(const std::vector<std::string>& texts) {
  std::uint64_t hash = 14695981039346656037U;
  for (const std::string& text : texts) {
    for (const char c : text + "\n") hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return hash;
}

void prepare(int fd, double deadline_s) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  // A machine without power does not answer: the kernel also gives up after the deadline.
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::min(deadline_s, 1e6) * 1000));
}

class Builder {
 public:
  Builder(Rendezvous& rendezvous, const MeshSettings& settings)
      : rendezvous_(rendezvous), settings_(settings), limit_(in_seconds(settings.deadline_s)) {
    mesh_.rank = rendezvous.rank();
    mesh_.peers.resize(rendezvous.ranks());
  }

  SocketMesh build() {
    const Descriptor listener = announce();
    for (int rank = 0; rank < mesh_.rank; ++rank) connect_lower(rank);
    accept_higher(listener);
    for (int rank = 0; rank < mesh_.rank; ++rank) confirm_lower(rank);
    for (const Descriptor& peer : mesh_.peers) {
      if (peer) prepare(peer.get(), settings_.deadline_s);
    }
    return std::move(mesh_);
  }

 private:
  int ranks() const { return static_cast<int>(mesh_.peers.size()); }
  Descriptor& peer(int rank) { return mesh_.peers[rank]; }

  Descriptor announce() {
    Announcement mine;
    mine.place = transport_common::this_place();
    mine.only = !settings_.address.empty() || !settings_.interface.empty();
    if (::getrandom(&mine.token, sizeof mine.token, 0) != sizeof mine.token)
      fail_run("transport.socket: the system gives no random numbers");
    if (settings_.address.empty()) {
      mine.addresses = transport_common::machine_addresses(settings_.interface);
      if (mine.addresses.empty() && !settings_.interface.empty()) {
        fail_config(fmt::format("transport.interface: '{}' is no interface of this machine with an address",
                                settings_.interface));
      }
    }
    Descriptor listener = listen_at(settings_, mine.addresses);
    mine.port = port_of(listener);
    const std::vector<std::string> texts = rendezvous_.exchange(write_announcement(mine));
    if (static_cast<int>(texts.size()) != ranks()) {
      fail_run(
          fmt::format("transport.socket: the rendezvous gave {} texts for {} ranks", texts.size(), ranks()));
    }
    for (int rank = 0; rank < ranks(); ++rank) others_.push_back(read_announcement(texts[rank], rank));
    greeting_.rank = static_cast<std::uint32_t>(mesh_.rank);
    greeting_.ranks = static_cast<std::uint32_t>(ranks());
    greeting_.run = run_of(texts);
    place_ = mine.place;
    limit_ = in_seconds(settings_.deadline_s);  // the rendezvous had its own deadline
    return listener;
  }

  void connect_lower(int rank) {
    const Announcement& other = others_[rank];
    std::vector<std::string> addresses = other.addresses;
    if (!other.only && other.place == place_) addresses.insert(addresses.begin(), "127.0.0.1");
    std::string tried;
    for (const std::string& address : addresses) {
      std::string error;
      const Time limit = std::min(limit_, in_seconds(kAttemptSeconds));
      peer(rank) = connect_to(address, other.port, limit, error);
      if (peer(rank) && send_all(peer(rank).get(), &greeting_, sizeof greeting_, limit)) return;
      tried += fmt::format("{}{} port {}: {}", tried.empty() ? "" : "; ", address, other.port, error);
    }
    fail_run(
        fmt::format("transport.socket: rank {} cannot reach rank {} ({}); set transport.interface or "
                    "transport.address to what the others reach",
                    mesh_.rank, rank, tried.empty() ? "it has no address" : tried));
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t rank = static_cast<std::size_t>(mesh_.rank) + 1; rank < mesh_.peers.size(); ++rank) {
      if (!mesh_.peers[rank]) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  // Strangers that connect (a scanner, a rank of an earlier run) are rejected, and waiting continues.
  void accept_higher(const Descriptor& listener) {
    while (!missing().empty()) {
      if (!wait_for(listener.get(), POLLIN, limit_)) {
        throw DeadlineError(
            fmt::format("transport.socket: {} did not connect to rank {} within {:g} s; see their "
                        "logs, or set transport.interface to what they reach",
                        ranks_text(missing()), mesh_.rank, settings_.deadline_s));
      }
      Descriptor fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      Greeting found;
      const Time limit = std::min(limit_, in_seconds(kGreetingSeconds));
      if (!fd || !receive_all(fd.get(), &found, sizeof found, limit) || !is_ours(found)) continue;
      const int rank = static_cast<int>(found.rank);
      if (rank <= mesh_.rank || peer(rank)) continue;
      if (!send_all(fd.get(), &greeting_, sizeof greeting_, limit)) continue;
      peer(rank) = std::move(fd);
    }
  }

  void confirm_lower(int rank) {
    Greeting found;
    if (receive_all(peer(rank).get(), &found, sizeof found, limit_) && is_ours(found) &&
        static_cast<int>(found.rank) == rank)
      return;
    throw DeadlineError(
        fmt::format("transport.socket: rank {} did not greet rank {} within {:g} s; see its log", rank,
                    mesh_.rank, settings_.deadline_s));
  }

  bool is_ours(const Greeting& found) const {
    return found.magic == greeting_.magic && found.ranks == greeting_.ranks && found.run == greeting_.run &&
           found.rank < greeting_.ranks;
  }

  Rendezvous& rendezvous_;
  const MeshSettings& settings_;
  Time limit_;
  SocketMesh mesh_;
  std::vector<Announcement> others_;
  std::string place_;
  Greeting greeting_;
};

}  // namespace

SocketMesh connect_mesh(Rendezvous& rendezvous, const MeshSettings& settings) {
  return Builder(rendezvous, settings).build();
}

}  // namespace tenon::socket_transport
