// Announcement of a process's listening address, as a line of text, and the addresses of this machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::socket_transport {

struct Announcement {
  std::uint64_t token = 0;  ///< drawn by the process
  std::string place;        ///< equal for processes that share a loopback
  std::uint16_t port = 0;
  bool only = false;                   ///< only `addresses`, not even the loopback
  std::vector<std::string> addresses;  ///< numeric, in the order of attempts
};

/// "tenon-socket/1 TOKEN PLACE PORT any|only ADDRESS,..."
std::string write_announcement(const Announcement& announcement);
/// Throws Error(kRun) that names `rank` unless the text is an announcement of this version.
Announcement read_announcement(std::string_view text, int rank);

/// Boot and network namespace of this process.
std::string this_place();
/// Returns numeric addresses of this machine, of one interface if it is named: IPv4 before IPv6, no loopback
/// and no link-local ones unless the interface has nothing else.
std::vector<std::string> machine_addresses(std::string_view interface);

}  // namespace tenon::socket_transport
