// Text of announcement.hpp.
#include "announcement.hpp"

#include <tenon/error.hpp>
#include <transport_common/addresses.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

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
    if (!transport_common::is_address(found.addresses.back())) refuse("with an address that is not numeric");
  }
  if (found.only && found.addresses.empty()) refuse("without an address");
  return found;
}

}  // namespace tenon::socket_transport
