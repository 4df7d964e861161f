// The place and the numeric addresses by which processes reach each other over TCP.
#pragma once

#include <fmt/format.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::transport_common {

/// Boot and network namespace of this process.
inline std::string this_place() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  const ssize_t length = ::readlink("/proc/self/ns/net", space.data(), space.size());
  // Without these files this process shares no loopback with others, which is slower but always correct.
  if (boot.empty() || length <= 0) return fmt::format("unknown-{}", ::getpid());
  return fmt::format("{}/{}", boot, std::string_view(space.data(), length));
}

inline bool is_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

/// Returns numeric addresses of this machine, of one interface if it is named: IPv4 before IPv6, no loopback
/// and no link-local ones unless the interface has nothing else.
inline std::vector<std::string> machine_addresses(std::string_view interface) {
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

}  // namespace tenon::transport_common
