// Takes the lock of file_lock.hpp.
#include "ab/file_lock.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>

namespace tenon::ab {
namespace {

constexpr std::chrono::milliseconds kPause{10};

int holder_of(int file) {
  char text[24] = {};
  int pid = 0;
  if (::pread(file, text, sizeof text - 1, 0) > 0) std::from_chars(text, text + sizeof text, pid);
  return pid;
}

}  // namespace

FileLock::FileLock(const std::string& path, std::chrono::milliseconds patience,
                   const std::function<std::string(int)>& busy) {
  file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_) fail_run(fmt::format("cannot make {}: {}", path, std::strerror(errno)));
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) fail_run(fmt::format("cannot lock {}: {}", path, std::strerror(errno)));
    if (std::chrono::steady_clock::now() >= deadline) fail_run(busy(holder_of(file_.get())));
    std::this_thread::sleep_for(kPause);
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file_.get(), 0) != 0 ||
      ::pwrite(file_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()))
    fail_run(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

}  // namespace tenon::ab
