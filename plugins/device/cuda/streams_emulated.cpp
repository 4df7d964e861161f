// Streams and events of the emulated device (streams.hpp): distinct handles without any state.
#include "streams.hpp"

#include <fmt/format.h>

#include <unistd.h>

namespace tenon::cuda {

void Streams::make_current() {}

std::string Streams::identity() {
  return fmt::format("emulated device {} of process {}", index_, ::getpid());
}

void* Streams::make_stream() {
  return new char();
}

void Streams::release_stream(void* stream) noexcept {
  delete static_cast<char*>(stream);
}

void* Streams::make_event() {
  return new char();
}

void Streams::release_event(void* event) noexcept {
  delete static_cast<char*>(event);
}

void Streams::record(void*, void*) {}

void Streams::wait(void*, void*) {}

bool Streams::reached(void*) {
  return true;
}

}  // namespace tenon::cuda
