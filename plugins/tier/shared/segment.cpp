#include "segment.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <thread>

namespace tenon::tier_shared {
namespace {

constexpr char kMagic[8] = {'T', 'E', 'N', 'O', 'N', 'R', 'O', 'W'};
constexpr std::uint32_t kVersion = 1;
constexpr const char* kFolder = "/dev/shm";
/// A killed process gives its locks back a moment after it has died.
constexpr auto kLockWait = std::chrono::seconds(2);

std::size_t aligned(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

/// FNV-1a: names need no more, because the header says whose rows these are.
std::uint64_t digest(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// All segments of a run begin with this.
std::string prefix_of(std::string_view run) {
  return fmt::format("tenon.{:016x}.", digest(run));
}

bool take_lock(int file, std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// Removes what earlier attempts of the run left. Segments that are locked belong to a living process: to
/// another rank of this attempt, or to one that its owner will report.
void remove_unused(std::string_view run) {
  const std::string prefix = prefix_of(run);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, ignored)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    const int file = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) continue;
    if (take_lock(file, {})) unlink(entry.path().c_str());
    close(file);
  }
}

/// "run '/a' (table 'emb.0.weight', rank 0, f32 rows of 16)"
std::string described(std::string_view run, std::string_view table, std::string_view state, int rank,
                      DType dtype, std::int64_t width) {
  return fmt::format("run '{}' (table '{}'{}{}, rank {}, {} rows of {})", run, table,
                     state.empty() ? "" : ", ", state, rank, dtype_name(dtype), width);
}

}  // namespace

Layout::Layout(const RowMemorySpec& spec, std::int64_t undo_entries) {
  constexpr std::size_t kLine = 64, kPage = 4096;
  const std::size_t row_bytes = spec.row_bytes();
  groups = aligned(sizeof(Header) + spec.run.size() + spec.table.size() + spec.state.size(), kLine);
  rows = aligned(groups + sizeof(std::uint32_t) * ((spec.rows() + kGroupRows - 1) / kGroupRows), kPage);
  undo = aligned(rows + row_bytes * static_cast<std::size_t>(spec.rows()), kPage);
  undo_stride = sizeof(OldRow) + aligned(row_bytes, alignof(OldRow));
  bytes = undo + undo_stride * static_cast<std::size_t>(undo_entries);
}

std::string Segment::path_of(const RowMemorySpec& spec) {
  return fmt::format("{}/{}r{}.{:016x}", kFolder, prefix_of(spec.run), spec.rank,
                     digest(fmt::format("{}/{}", spec.table, spec.state)));
}

Segment::Segment(const RowMemorySpec& spec, std::int64_t undo_entries)
    : name_(spec.name()), layout_(spec, undo_entries) {
  try {
    if (!spec.run.empty()) path_ = path_of(spec);
    if (!path_.empty() && !spec.resumes) remove_unused(spec.run);
    found_ = !path_.empty() && attach(spec, undo_entries);
    if (!found_) make(spec, undo_entries);
    header().process = getpid();
  } catch (...) {
    if (data_ != nullptr) munmap(data_, layout_.bytes);
    if (file_ >= 0) close(file_);
    throw;
  }
}

Segment::~Segment() {
  munmap(data_, layout_.bytes);
  close(file_);
}

void Segment::map() {
  void* const memory = mmap(nullptr, layout_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) {
    fail_run(fmt::format("row table '{}': the system does not map {} bytes of shared memory: {}", name_,
                         layout_.bytes, std::strerror(errno)));
  }
  data_ = static_cast<std::byte*>(memory);
}

bool Segment::attach(const RowMemorySpec& spec, std::int64_t undo_entries) {
  file_ = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  if (file_ < 0 && errno == ENOENT) return false;
  if (file_ < 0)
    fail_run(fmt::format("row table '{}': {} cannot be opened: {}", name_, path_, std::strerror(errno)));
  const auto refuse = [&](const std::string& why) {
    fail_run(fmt::format("row table '{}': {} {}. Remove it, and the rows come from the checkpoint: rm {}/{}*",
                         name_, path_, why, kFolder, prefix_of(spec.run)));
  };
  Header found{};
  const bool whole = pread(file_, &found, sizeof found, 0) == static_cast<ssize_t>(sizeof found);
  if (!take_lock(file_, kLockWait)) {
    fail_run(fmt::format(
        "row table '{}': {} is in use by process {}, which trains the same run; end it, or choose "
        "another folder with --run-dir",
        name_, path_, whole ? found.process : 0));
  }
  if (!whole || std::memcmp(found.magic, kMagic, sizeof kMagic) != 0)
    refuse("is no segment of rows: its first bytes are not those of one");
  if (found.version != kVersion)
    refuse(fmt::format("has version {} of the format; expected {}", found.version, kVersion));
  struct stat status {};
  fstat(file_, &status);
  std::string texts(std::size_t{found.run_bytes} + found.table_bytes + found.state_bytes, '\0');
  if (static_cast<std::size_t>(status.st_size) < sizeof found + texts.size() ||
      pread(file_, texts.data(), texts.size(), sizeof found) != static_cast<ssize_t>(texts.size()))
    refuse(fmt::format("was truncated: it has {} bytes", status.st_size));
  const std::string_view all = texts;
  const std::string theirs =
      described(all.substr(0, found.run_bytes), all.substr(found.run_bytes, found.table_bytes),
                all.substr(std::size_t{found.run_bytes} + found.table_bytes), found.rank,
                static_cast<DType>(found.dtype), found.width);
  const std::string mine = described(spec.run, spec.table, spec.state, spec.rank, spec.dtype, spec.width);
  if (theirs != mine) refuse(fmt::format("holds rows of {}; expected {}", theirs, mine));
  // Another number of ranks, or another size of the undo log: the rows come from the checkpoint.
  if (found.first != spec.first || found.last != spec.last || found.undo_entries != undo_entries) {
    remove();
    close(file_);
    file_ = -1;
    return false;
  }
  if (static_cast<std::size_t>(status.st_size) != layout_.bytes)
    refuse(fmt::format("was truncated: expected {} bytes, found {}", layout_.bytes, status.st_size));
  map();
  return true;
}

// The file gets its name once it is whole and locked. Its pages are taken now: a write to memory that the
// system then does not have would end the process without a word.
void Segment::make(const RowMemorySpec& spec, std::int64_t undo_entries) {
  file_ = open(kFolder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file_ < 0)
    fail_run(fmt::format("row table '{}': shared memory in {} cannot be had: {}", name_, kFolder,
                         std::strerror(errno)));
  take_lock(file_, {});
  if (const int code = posix_fallocate(file_, 0, static_cast<off_t>(layout_.bytes)); code != 0) {
    struct statvfs room {};
    fstatvfs(file_, &room);
    fail_run(fmt::format(
        "row table '{}': its rows take {} bytes of shared memory, and {} has {} free: {}. Make it larger "
        "(mount -o remount,size=...), lower the option 'undo', remove what other runs left there "
        "({}/tenon.*), or place the table in another tier",
        name_, layout_.bytes, kFolder, std::uint64_t{room.f_bavail} * room.f_frsize, std::strerror(code),
        kFolder));
  }
  map();
  Header& header = this->header();
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.rank = spec.rank;
  header.dtype = static_cast<std::uint32_t>(spec.dtype);
  header.first = spec.first;
  header.last = spec.last;
  header.width = spec.width;
  header.undo_entries = undo_entries;
  header.run_bytes = static_cast<std::uint32_t>(spec.run.size());
  header.table_bytes = static_cast<std::uint32_t>(spec.table.size());
  header.state_bytes = static_cast<std::uint32_t>(spec.state.size());
  header.process = getpid();
  auto* text = reinterpret_cast<char*>(data_ + sizeof(Header));
  for (const std::string_view part : {spec.run, spec.table, spec.state})
    text = std::copy(part.begin(), part.end(), text);
  if (path_.empty()) return;
  const std::string unnamed = fmt::format("/proc/self/fd/{}", file_);
  if (linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) == 0) return;
  const int code = errno;
  fail_run(fmt::format("row table '{}': {} cannot be made: {}{}", name_, path_, std::strerror(code),
                       code == EEXIST ? "; another process trains the same run, end it or choose another "
                                        "folder with --run-dir"
                                      : ""));
}

void Segment::remove() {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace tenon::tier_shared
