// Takes the lock. The file stays when the study ends: a file that is removed could be locked by one process
// and made anew by the next.
#include "ab/study_lock.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <thread>

namespace tenon::ab {
namespace {

constexpr std::chrono::milliseconds kPause{20};

/// "process 17", or "another process" where the file does not say.
std::string holder_of(int file) {
  char text[24] = {};
  int pid = 0;
  if (::pread(file, text, sizeof text - 1, 0) > 0) std::from_chars(text, text + sizeof text, pid);
  return pid > 0 ? fmt::format("process {}", pid) : "another process";
}

}  // namespace

StudyLock::StudyLock(const std::string& folder, std::chrono::milliseconds patience) {
  const std::string path = (std::filesystem::path(folder) / "study.lock").string();
  file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file_) fail_run(fmt::format("cannot make {}: {}", path, std::strerror(errno)));
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) fail_run(fmt::format("cannot lock {}: {}", path, std::strerror(errno)));
    if (std::chrono::steady_clock::now() >= deadline) {
      fail_run(fmt::format(
          "{} works on the study in {}, and only one may: wait until it has ended, stop it with Ctrl-C "
          "(SIGINT), or name another folder with --out. tenon report shows how far it is",
          holder_of(file_.get()), folder));
    }
    std::this_thread::sleep_for(kPause);
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file_.get(), 0) != 0 ||
      ::pwrite(file_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()))
    fail_run(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

}  // namespace tenon::ab
