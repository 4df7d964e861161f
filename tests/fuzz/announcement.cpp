// Target: a process's announcement of its listening address to the others. An accepted one is written back to
// the same words.
#include "input.hpp"

#include "announcement.hpp"

#include <tenon/error.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  try {
    const socket_transport::Announcement found =
        socket_transport::read_announcement(fuzz::text_of(data, size), 0);
    const std::string text = socket_transport::write_announcement(found);
    const socket_transport::Announcement again = socket_transport::read_announcement(text, 0);
    fuzz::require(
        found.port == again.port && found.token == again.token && found.addresses == again.addresses,
        "another announcement when written");
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::kRun, error.what());
  }
  return 0;
}
