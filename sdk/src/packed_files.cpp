// The lock is flock(): it needs no cleaning up after a process that died.
#include <tenon/error.hpp>
#include <tenon/sdk/packed_files.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

TENON_ABI_BEGIN
namespace {

/// Lock that is held while packing. The system releases it when the process dies.
class PackingLock {
 public:
  PackingLock(const PackedFile& file, double patience) {
    const std::string path = file.path + ".lock";
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0)
      throw FileError(errno, fmt::format("cannot make {}: {}", path, std::strerror(errno)));
    using Clock = std::chrono::steady_clock;
    std::int64_t seen = -1;
    Clock::time_point since = Clock::now();
    while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      std::error_code none;
      const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file.growing, none));
      if (size != seen) {
        seen = size;
        since = Clock::now();
      }
      if (std::chrono::duration<double>(Clock::now() - since).count() > patience) {
        ::close(descriptor_);
        fail_run(
            fmt::format("{}: another process holds '{}' to write '{}', and has written nothing for {} s; end "
                        "it, or set data.cache to another folder",
                        file.owner, path, file.growing, std::round(patience * 10) / 10));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  ~PackingLock() { ::close(descriptor_); }
  PackingLock(const PackingLock&) = delete;
  PackingLock& operator=(const PackingLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace

FileIdentity file_identity(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    fail_config(
        fmt::format("data file '{}': cannot open it: {}", path, std::generic_category().message(errno)));
  }
  return {status.st_size, status.st_mtim.tv_sec * std::int64_t{1000000000} + status.st_mtim.tv_nsec};
}

std::string packed_path(const std::string& source, const std::string& folder, std::string_view recipe,
                        std::string_view suffix) {
  std::error_code none;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(source, none);
  const std::string place = folder.empty() ? (whole.parent_path() / "tenon-cache").string() : folder;
  std::string name = whole.string();
  name += recipe;
  return fmt::format("{}/{}.{}.{}", place, whole.filename().string(),
                     sha256_of(std::as_bytes(std::span(name))).substr(0, 16), suffix);
}

void open_packed(FileSystem& files, const PackedFile& file,
                 const std::function<bool(const FileIdentity&)>& open,
                 const std::function<void(const FileIdentity&)>& pack) {
  const FileIdentity identity = file_identity(file.source);
  if (open(identity)) return;
  try {
    files.make_directories(parent_path(file.path));
    // Hashing the source and syncing do not make the file grow.
    const PackingLock lock(file, file.deadline + static_cast<double>(identity.size) / file.bytes_per_second);
    if (open(identity)) return;  // another process or thread was faster
    try {
      pack(identity);
    } catch (...) {
      std::error_code ignored;
      std::filesystem::remove(file.growing, ignored);
      throw;
    }
  } catch (const FileError& error) {
    fail_config(fmt::format("data file '{}': cannot keep {}: {}; set data.cache to a folder with room",
                            file.source, file.held, error.what()));
  }
  if (!open(file_identity(file.source)))
    fail_run(fmt::format("data file '{}': it changed while it was read", file.source));
}

TENON_ABI_END
