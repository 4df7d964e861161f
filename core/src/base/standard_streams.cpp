#include "base/standard_streams.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace tenon::base {

void open_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest number that is free is this one.
    [[maybe_unused]] const int opened = ::open("/dev/null", descriptor == 0 ? O_RDONLY : O_WRONLY);
  }
}

StandardOutput::StandardOutput() : before_(std::cout.rdbuf(this)) {
  setp(kept_.data(), kept_.data() + kept_.size());
}

StandardOutput::~StandardOutput() {
  write_out();
  std::cout.rdbuf(before_);
}

std::string StandardOutput::failure() {
  write_out();
  errno = 0;
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && error_ == 0)
    error_ = errno == 0 ? EIO : errno;
  return error_ == 0 ? std::string()
                     : fmt::format("standard output cannot be written: {}", std::strerror(error_));
}

int StandardOutput::overflow(int character) {
  if (!write_out()) return traits_type::eof();
  if (character != traits_type::eof()) sputc(static_cast<char>(character));
  return 0;
}

int StandardOutput::sync() {
  return write_out() ? 0 : -1;
}

bool StandardOutput::write_out() {
  for (const char* next = pbase(); next < pptr() && error_ == 0;) {
    const ssize_t written = ::write(STDOUT_FILENO, next, pptr() - next);
    if (written >= 0) {
      next += written;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  setp(kept_.data(), kept_.data() + kept_.size());
  return error_ == 0;
}

}  // namespace tenon::base
