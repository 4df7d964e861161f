// Announcement of a process's listening address, as a line of text.
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

}  // namespace tenon::socket_transport
