#include "base/digest_cache.hpp"

#include "base/file_descriptor.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

namespace tenon::base {
namespace {

constexpr std::string_view kHead = "tenon-digests 1 ";
constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::int64_t kSecond = 1'000'000'000;
/// Two changes within this much time may leave the same times.
constexpr std::int64_t kSettled = 2 * kSecond;

std::int64_t nanoseconds(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * kSecond + time.tv_nsec;
}

std::optional<FileState> state_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return FileState{static_cast<std::uint64_t>(status.st_dev), static_cast<std::uint64_t>(status.st_ino),
                   static_cast<std::int64_t>(status.st_size), nanoseconds(status.st_mtim),
                   nanoseconds(status.st_ctim)};
}

/// Images that are mounted whole may give other contents the same times, and so may file systems of programs.
bool keeps_times(int descriptor) {
  struct statfs system {};
  if (::fstatfs(descriptor, &system) != 0) return false;
  constexpr std::array<std::uint32_t, 9> kKnown = {
      0xef53,      // ext2, ext3, ext4
      0x58465342,  // xfs
      0x9123683e,  // btrfs
      0xf2f52010,  // f2fs
      0x2fc12fc1,  // zfs
      0x01021994,  // tmpfs
      0x794c7630,  // overlay
      0x6969,      // nfs
      0x0bd00bd0,  // lustre
  };
  const auto type = static_cast<std::uint32_t>(system.f_type);
  return std::find(kKnown.begin(), kKnown.end(), type) != kKnown.end();
}

std::string xxh3_of(std::string_view text) {
  return xxh3_128_of(std::as_bytes(std::span(text)));
}

/// The number at the begin of `text`, with the one character after it, is taken off.
template <class Number>
bool take_number(std::string_view& text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || at == end || *at != ' ') return false;
  text.remove_prefix(static_cast<std::size_t>(at - text.data()) + 1);
  return true;
}

std::optional<KeptDigest> parse_line(std::string_view line) {
  KeptDigest kept;
  FileState& file = kept.file;
  if (!take_number(line, file.device) || !take_number(line, file.inode) || !take_number(line, file.size) ||
      !take_number(line, file.modified_ns) || !take_number(line, file.changed_ns)) {
    return std::nullopt;
  }
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (line.size() != 64 || !std::all_of(line.begin(), line.end(), is_digit)) return std::nullopt;
  kept.sha256 = line;
  return kept;
}

std::string line_of(const KeptDigest& kept) {
  const FileState& file = kept.file;
  return fmt::format("{} {} {} {} {} {}\n", file.device, file.inode, file.size, file.modified_ns,
                     file.changed_ns, kept.sha256);
}

/// The whole of a regular file that this user alone may write; none otherwise.
std::optional<std::string> read_own_file(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  if (status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return std::nullopt;
  if (status.st_size < 0 || static_cast<std::size_t>(status.st_size) > kMostBytes) return std::nullopt;
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    done += static_cast<std::size_t>(got);
  }
  return text;
}

/// Writes a file of its own and renames it: readers see the old text or the new one. False on any error.
bool replace_own_file(const std::string& path, const std::string& text) {
  std::error_code failure;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failure);
  if (failure) return false;
  std::string name = path + ".XXXXXX";
  FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) return false;
  bool whole = true;
  for (std::size_t done = 0; whole && done < text.size();) {
    const ssize_t put = ::write(file.get(), text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    whole = put > 0;
    if (whole) done += static_cast<std::size_t>(put);
  }
  if (whole && std::rename(name.c_str(), path.c_str()) == 0) return true;
  ::unlink(name.c_str());
  return false;
}

std::string cache_path() {
  const char* const chosen = std::getenv("XDG_CACHE_HOME");
  // A relative path is to be ignored by the specification of base directories.
  if (chosen != nullptr && *chosen == '/') return std::string(chosen) + "/tenon/digests";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/tenon/digests" : "";
}

}  // namespace

std::string digest_text(const std::vector<KeptDigest>& digests) {
  std::string lines;
  for (const KeptDigest& kept : digests) lines += line_of(kept);
  return fmt::format("{}{}\n{}", kHead, xxh3_of(lines), lines);
}

std::optional<std::vector<KeptDigest>> parse_digests(std::string_view text) {
  if (text.size() > kMostBytes || text.substr(0, kHead.size()) != kHead) return std::nullopt;
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view sum = text.substr(kHead.size(), end - kHead.size());
  text.remove_prefix(end + 1);
  if (sum != xxh3_of(text)) return std::nullopt;
  std::vector<KeptDigest> digests;
  while (!text.empty()) {
    const std::size_t length = text.find('\n');
    if (length == std::string_view::npos || digests.size() == DigestCache::kMost) return std::nullopt;
    std::optional<KeptDigest> kept = parse_line(text.substr(0, length));
    if (!kept) return std::nullopt;
    digests.push_back(std::move(*kept));
    text.remove_prefix(length + 1);
  }
  return digests;
}

DigestCache& DigestCache::of_user() {
  static DigestCache cache(cache_path());
  return cache;
}

std::int64_t DigestCache::system_now() {
  timespec now{};
  return ::clock_gettime(CLOCK_REALTIME, &now) == 0 ? nanoseconds(now) : 0;
}

void DigestCache::verify() {
  verifies_ = true;
}

/// Whether the file last changed long enough ago for its next change to show.
bool DigestCache::is_settled(const FileState& file) const {
  return now_() - std::max(file.modified_ns, file.changed_ns) >= kSettled;
}

/// Replaces what is in memory, unless the file is absent, foreign or damaged.
void DigestCache::load() {
  const std::optional<std::string> text = read_own_file(path_);
  std::optional<std::vector<KeptDigest>> digests = text ? parse_digests(*text) : std::nullopt;
  if (digests) digests_ = std::move(*digests);
  loaded_ = true;
}

std::optional<std::string> DigestCache::find(const FileState& file) {
  const std::lock_guard lock(mutex_);
  if (!loaded_) load();
  for (const KeptDigest& kept : digests_) {
    if (kept.file == file) return kept.sha256;
  }
  return std::nullopt;
}

void DigestCache::keep(const FileState& file, const std::string& sha256) {
  const std::lock_guard lock(mutex_);
  load();  // what other processes kept meanwhile
  const auto is_same = [&](const KeptDigest& kept) {
    return kept.file.device == file.device && kept.file.inode == file.inode;
  };
  digests_.erase(std::remove_if(digests_.begin(), digests_.end(), is_same), digests_.end());
  if (digests_.size() >= kMost)
    digests_.erase(digests_.begin(), digests_.begin() + static_cast<std::ptrdiff_t>(kMost / 4));
  digests_.push_back({file, sha256});
  replace_own_file(path_, digest_text(digests_));
}

std::string DigestCache::sha256(const std::string& name, int descriptor,
                                const std::function<std::string()>& compute) {
  const std::optional<FileState> file = state_of(descriptor);
  if (path_.empty() || !file || file->size < kSmallest || !is_settled(*file) || !keeps_times(descriptor))
    return compute();
  const std::optional<std::string> known = find(*file);
  if (known && !verifies_) return *known;
  std::string found = compute();
  if (known && *known != found) {
    fail_run(fmt::format(
        "{}: its SHA-256 is {}, and the cache {} says {} for this state of the file, so runs recorded a "
        "digest that is not this file's; remove the cache, and do not trust plugins.lock and data digests of "
        "runs since {} was last written",
        name, found, path_, *known, path_));
  }
  // A file that changed while it was read has no digest to keep.
  if (!known && state_of(descriptor) == file) keep(*file, found);
  return found;
}

}  // namespace tenon::base
