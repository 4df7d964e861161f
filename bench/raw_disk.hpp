// The disk's own speed for the bytes of a file: large writes and a sync, reads with and without the page
// cache. Linux only, like the calls that drop and count cached pages.
#pragma once

#include <tenon/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace tenon::bench {

inline constexpr std::size_t kRawPiece = std::size_t{8} << 20;

/// An open file; every call on it that fails ends the benchmark.
class RawFile {
 public:
  RawFile(std::string path, int flags)
      : path_(std::move(path)), descriptor_(check(::open(path_.c_str(), flags, 0644))) {}
  ~RawFile() { ::close(descriptor_); }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::size_t size() const {
    struct stat status {};
    check(::fstat(descriptor_, &status));
    return static_cast<std::size_t>(status.st_size);
  }
  template <typename Result>
  Result check(Result result) const {
    if (result < 0) fail_run(fmt::format("{}: {}", path_, std::strerror(errno)));
    return result;
  }

 private:
  std::string path_;
  int descriptor_;
};

/// A folder in memory has no disk to compare with.
inline void require_disk(const std::string& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) fail_run(fmt::format("{}: {}", folder, std::strerror(errno)));
  if (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC)
    fail_run(fmt::format("{} lies in memory; name a folder on a disk with --folder", folder));
}

/// Waits until no earlier measurement still writes to the disk.
inline void settle_disk(const std::string& folder) {
  const RawFile file(folder, O_RDONLY | O_DIRECTORY);
  file.check(::syncfs(file.descriptor()));
}

/// Writes a new file to the medium, without syncing its name.
inline void write_raw(const std::string& path, std::span<const std::byte> bytes) {
  const RawFile file(path, O_WRONLY | O_CREAT | O_TRUNC);
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t piece = std::min(kRawPiece, bytes.size() - done);
    done += static_cast<std::size_t>(
        file.check(::pwrite(file.descriptor(), bytes.data() + done, piece, static_cast<off_t>(done))));
  }
  file.check(::fdatasync(file.descriptor()));
}

/// Reads the file into the beginning of `out`; returns its size.
inline std::size_t read_raw(const std::string& path, std::span<std::byte> out) {
  const RawFile file(path, O_RDONLY);
  std::size_t done = 0;
  for (;;) {
    const std::size_t piece = std::min(kRawPiece, out.size() - done);
    const auto got =
        static_cast<std::size_t>(file.check(::read(file.descriptor(), out.data() + done, piece)));
    if (got == 0) return done;
    done += got;
  }
}

/// Drops the file from the page cache, which only clean pages leave, and checks that it is gone. The cache of
/// a virtual machine's host stays.
inline void drop_cached(const std::string& path) {
  const RawFile file(path, O_RDONLY);
  file.check(::fdatasync(file.descriptor()));
  if (::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED) != 0)
    fail_run(path + ": its pages cannot be dropped");
  const std::size_t size = file.size();
  if (size == 0) return;
  void* const map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (map == MAP_FAILED) fail_run(fmt::format("{}: {}", path, std::strerror(errno)));
  std::vector<unsigned char> pages(size / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + 1);
  const int counted = ::mincore(map, size, pages.data());
  ::munmap(map, size);
  file.check(counted);
  const auto cached = std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
  if (static_cast<std::size_t>(cached) * 100 > pages.size())
    fail_run(fmt::format("{}: {} of {} pages stayed in the page cache", path, cached, pages.size()));
}

}  // namespace tenon::bench
