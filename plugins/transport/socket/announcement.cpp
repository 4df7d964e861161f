// Text and addresses of announcement.hpp.
#include "announcement.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <memory>

namespace tenon::socket_transport {

namespace {

constexpr std::string_view kHead = "tenon-socket/1";

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename T>
bool read_number(std::string_view text, T& value, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

}  // namespace

std::string write_announcement(const Announcement& announcement) {
  return fmt::format("{} {:016x} {} {} {} {}", kHead, announcement.token, announcement.place,
                     announcement.port, announcement.only ? "only" : "any",
                     fmt::join(announcement.addresses, ","));
}

Announcement read_announcement(std::string_view text, int rank) {
  const auto refuse = [&](const char* what) {
    fail_run(
        fmt::format("transport.socket: rank {} announced '{}', {}; all ranks run the same program and "
                    "transport",
                    rank, text.substr(0, 200), what));
  };
  const auto parts = split(text, ' ');
  if (parts.empty() || parts[0] != kHead) refuse("expected to begin with tenon-socket/1");
  if (parts.size() != 6) refuse("expected six words");
  Announcement found;
  if (parts[1].size() != 16 || !read_number(parts[1], found.token, 16)) refuse("invalid token");
  found.place = parts[2];
  if (!read_number(parts[3], found.port, 10) || found.port == 0) refuse("invalid port");
  if (parts[4] != "any" && parts[4] != "only") refuse("expected 'any' or 'only'");
  found.only = parts[4] == "only";
  for (const std::string_view address : split(parts[5], ',')) {
    if (address.empty()) continue;
    found.addresses.emplace_back(address);
    if (!is_address(found.addresses.back())) refuse("with an address that is not numeric");
  }
  if (found.only && found.addresses.empty()) refuse("without an address");
  return found;
}

std::string this_place() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const ssize_t length = ::readlink("/proc/self/ns/net", space.data(), space.size());
  // Without these files this process shares no loopback with others, which is slower but always correct.
  if (boot.empty() || length <= 0) return fmt::format("unknown-{}", ::getpid());
  return fmt::format("{}/{}", boot, std::string_view(space.data(), length));
}

std::vector<std::string> machine_addresses(std::string_view interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<std::string> usual, six, local;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (!interface.empty() && interface != entry->ifa_name) continue;
    const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) == nullptr) continue;
      (loopback ? local : usual).emplace_back(text.data());
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) continue;  // useless without a zone
      if (inet_ntop(AF_INET6, &address->sin6_addr, text.data(), text.size()) == nullptr) continue;
      (loopback ? local : six).emplace_back(text.data());
    }
  }
  usual.insert(usual.end(), six.begin(), six.end());
  return usual.empty() && !interface.empty() ? local : usual;
}

}  // namespace tenon::socket_transport
