// Preloaded into the program: a disk that fails where checkpoints of slots 4 and 6 are written, or is slow
// for all of them. FAILING_DISK has words for what fails (write, sync, sync_folder, rename_manifest,
// rename_generation; summary: writes of summary.json; short: every write takes half of what it is given;
// slow: a sync takes FAILING_DISK_SECONDS) and FAILING_DISK_ERROR the errno of it.
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_set(const std::string& what) {
  return (' ' + setting("FAILING_DISK") + ' ').find(' ' + what + ' ') != std::string::npos;
}

bool concerns(const std::string& path) {
  return path.find("/step-4") != std::string::npos || path.find("/step-6") != std::string::npos;
}

std::string path_of(int descriptor) {
  char path[PATH_MAX];
  const auto size = ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path);
  return size > 0 ? std::string(path, size) : std::string();
}

bool concerns(int descriptor) {
  return concerns(path_of(descriptor));
}

int fail() {
  errno = std::atoi(setting("FAILING_DISK_ERROR").c_str());
  return -1;
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t count) {
  if (is_set("write") && concerns(descriptor)) return fail();
  if (is_set("summary") && path_of(descriptor).ends_with("/summary.json.tmp")) return fail();
  if (is_set("short") && count > 1 && concerns(descriptor)) count /= 2;
  return ::syscall(SYS_write, descriptor, bytes, count);
}

int fdatasync(int descriptor) {
  if (is_set("sync") && concerns(descriptor)) return fail();
  if (is_set("slow") && path_of(descriptor).find("/step-") != std::string::npos) {
    const double seconds = std::atof(setting("FAILING_DISK_SECONDS").c_str());
    timespec left{static_cast<time_t>(seconds), static_cast<long>(1e9 * (seconds - std::floor(seconds)))};
    ::nanosleep(&left, nullptr);
  }
  return static_cast<int>(::syscall(SYS_fdatasync, descriptor));
}

int fsync(int descriptor) {
  if (is_set("sync_folder") && concerns(descriptor)) return fail();
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

int rename(const char* from, const char* to) noexcept {
  const bool manifest = std::string(to).ends_with("/MANIFEST.json");
  if (is_set(manifest ? "rename_manifest" : "rename_generation") && concerns(std::string(to))) return fail();
  return static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}
}
