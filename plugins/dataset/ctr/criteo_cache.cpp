// Layout: the rows, then a page with the identity of the source (size and time of change), its SHA-256, the
// counts, and a CRC. The file is written under another name and renamed once it is durable, so a file with
// the right name is complete.
#include "criteo_cache.hpp"

#include <tenon/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

namespace tenon::ctr {
namespace {

constexpr char kMagic[8] = {'t', 'e', 'n', 'o', 'n', 'c', 't', 'r'};
constexpr std::uint32_t kVersion = 1;
constexpr std::int64_t kFooterBytes = 4096;
constexpr std::size_t kCopiedAtOnce = 8192;
constexpr std::int64_t kRowBytes = sizeof(CriteoRow);

struct Footer {
  char magic[8] = {};
  std::uint32_t version = kVersion;
  std::int32_t smallest = 0;
  std::int64_t source_size = 0, source_changed_ns = 0, rows = 0;
  char sha256[64] = {};
  FaultCounts faults;
  std::uint32_t crc = 0;  ///< of everything before it
  std::uint32_t unused = 0;
};
static_assert(std::is_trivially_copyable_v<Footer> && sizeof(Footer) <= kFooterBytes);

std::span<const std::byte> checked_part(const Footer& footer) {
  return std::as_bytes(std::span(&footer, 1)).first(offsetof(Footer, crc));
}

/// Lock that is held while packing. The system releases it when the process dies.
class PackingLock {
 public:
  PackingLock(const std::string& path, const std::string& growing, double deadline) {
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0)
      throw FileError(errno, fmt::format("cannot make {}: {}", path, std::strerror(errno)));
    using Clock = std::chrono::steady_clock;
    std::int64_t seen = -1;
    Clock::time_point since = Clock::now();
    while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      std::error_code none;
      const auto size = static_cast<std::int64_t>(std::filesystem::file_size(growing, none));
      if (size != seen) {
        seen = size;
        since = Clock::now();
      }
      if (std::chrono::duration<double>(Clock::now() - since).count() > deadline) {
        ::close(descriptor_);
        fail_run(
            fmt::format("data.criteo: another process holds '{}' to write '{}', and has written nothing for "
                        "{} s; end it, or "
                        "set data.cache to another folder",
                        path, growing, std::round(deadline * 10) / 10));
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

CriteoCache::Identity CriteoCache::identity_of(const std::string& source) {
  struct stat status {};
  if (::stat(source.c_str(), &status) != 0) {
    fail_config(
        fmt::format("data file '{}': cannot open it: {}", source, std::generic_category().message(errno)));
  }
  return {status.st_size, status.st_mtim.tv_sec * std::int64_t{1000000000} + status.st_mtim.tv_nsec};
}

CriteoCache::CriteoCache(const std::string& source, const std::string& folder, double deadline)
    : files_(make_posix_files()) {
  const Identity identity = identity_of(source);
  std::error_code none;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(source, none);
  const std::string place = folder.empty() ? (whole.parent_path() / "tenon-cache").string() : folder;
  const std::string name = whole.string();
  path_ = fmt::format("{}/{}.{}.rows", place, whole.filename().string(),
                      sha256_of(std::as_bytes(std::span(name))).substr(0, 16));
  if (open(identity)) return;
  try {
    files_->make_directories(place);
    // Hashing the source and syncing do not make the file grow; 10 MB/s is slow for either.
    const double patience = deadline + static_cast<double>(identity.size) / 1e7;
    const PackingLock lock(path_ + ".lock", path_ + ".tmp", patience);
    if (open(identity)) return;  // another process or thread was faster
    try {
      pack(source, identity);
    } catch (...) {
      std::error_code ignored;
      std::filesystem::remove(path_ + ".tmp", ignored);
      throw;
    }
  } catch (const FileError& error) {
    fail_config(
        fmt::format("data file '{}': cannot keep its packed rows, 160 bytes each: {}; set data.cache to a "
                    "folder with room",
                    source, error.what()));
  }
  if (!open(identity_of(source)))
    fail_run(fmt::format("data file '{}': it changed while it was read", source));
}

bool CriteoCache::open(const Identity& source) {
  if (!files_->exists(path_)) return false;
  try {
    file_ = files_->open(path_);
    if (file_->size() < kFooterBytes) return false;
    Footer footer;
    file_->read(file_->size() - kFooterBytes, std::as_writable_bytes(std::span(&footer, 1)));
    if (std::memcmp(footer.magic, kMagic, sizeof kMagic) != 0 || footer.version != kVersion ||
        footer.crc != crc32c(checked_part(footer)) || footer.source_size != source.size ||
        footer.source_changed_ns != source.changed_ns ||
        file_->size() != kFooterBytes + footer.rows * kRowBytes) {
      return false;
    }
    rows_ = footer.rows;
    faults_ = footer.faults;
    smallest_ = footer.smallest;
    sha256_.assign(footer.sha256, sizeof footer.sha256);
    return true;
  } catch (const FileError&) {
    return false;  // an unreadable file counts as absent and is rebuilt
  }
}

void CriteoCache::pack(const std::string& source, const Identity& identity) {
  Footer footer;
  std::memcpy(footer.magic, kMagic, sizeof kMagic);
  footer.source_size = identity.size;
  footer.source_changed_ns = identity.changed_ns;
  CriteoReader reader(source);
  const std::string temporary = path_ + ".tmp";
  const std::unique_ptr<WritableFile> out = files_->create(temporary);
  std::vector<CriteoRow> rows(kCopiedAtOnce);
  while (const std::size_t count = reader.read(rows)) {
    const auto now = std::span(rows).first(count);
    for (const CriteoRow& row : now) {
      for (const std::int32_t number : row.numbers) {
        footer.smallest = std::min(footer.smallest, number == kMissingNumber ? 0 : number);
      }
    }
    out->append(std::as_bytes(now));
    footer.rows += static_cast<std::int64_t>(count);
  }
  footer.faults = reader.faults();
  sha256_of_file(*files_, source).copy(footer.sha256, sizeof footer.sha256);
  footer.crc = crc32c(checked_part(footer));
  std::vector<std::byte> page(kFooterBytes, std::byte{0});
  std::memcpy(page.data(), &footer, sizeof footer);
  out->append(page);
  out->sync();
  out->close();
  files_->rename(temporary, path_);
  files_->sync_directory(parent_path(path_));
}

void CriteoCache::read(std::int64_t row, std::span<CriteoRow> out) const {
  file_->read(row * kRowBytes, std::as_writable_bytes(out));
}

}  // namespace tenon::ctr
