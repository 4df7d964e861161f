// SHA-256 of plugins and data that a run of this user computed before, in one small file of the user's cache
// folder. A digest belongs to a state of a file: device, inode, size and the times of its content and of its
// inode. The kernel sets the last at every change, and no program can set it back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::base {

struct FileState {
  std::uint64_t device = 0, inode = 0;
  std::int64_t size = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;  ///< since 1970
  bool operator==(const FileState&) const = default;
};

/// Offered by files of the operating system (dynamic_cast), whose digests may be kept.
class DescribedFile {
 public:
  virtual ~DescribedFile() = default;
  virtual int descriptor() const = 0;
};

struct KeptDigest {
  FileState file;
  std::string sha256;
  bool operator==(const KeptDigest&) const = default;
};

/// The text of a cache file: a line with its version and the xxh3-128 of the rest, then a line per digest.
std::string digest_text(const std::vector<KeptDigest>& digests);
/// None where digest_text() did not write the text, or has more than DigestCache::kMost digests.
std::optional<std::vector<KeptDigest>> parse_digests(std::string_view text);

/// Any thread; other processes may use the same file at the same time. Where the file cannot be read or
/// written, everything is computed.
class DigestCache {
 public:
  static constexpr std::size_t kMost = 4096;
  static constexpr std::int64_t kSmallest = 64 << 10;  ///< bytes of a file whose digest is kept

  /// Nanoseconds since 1970.
  using Clock = std::function<std::int64_t()>;

  /// A path of "" keeps nothing.
  explicit DigestCache(std::string path, Clock now = system_now)
      : path_(std::move(path)), now_(std::move(now)) {}
  static std::int64_t system_now();

  /// That of this process: $XDG_CACHE_HOME/tenon/digests, or ~/.cache/tenon/digests.
  static DigestCache& of_user();

  /// Computes every digest from now on, and throws Error(kRun) where the cache says otherwise.
  void verify();

  /// The digest of the open file: the kept one, or compute(). `name` is for errors.
  std::string sha256(const std::string& name, int descriptor, const std::function<std::string()>& compute);

 private:
  std::optional<std::string> find(const FileState& file);
  void keep(const FileState& file, const std::string& sha256);
  void load();
  bool is_settled(const FileState& file) const;

  const std::string path_;
  const Clock now_;
  std::atomic<bool> verifies_ = false;
  std::mutex mutex_;
  std::vector<KeptDigest> digests_;
  bool loaded_ = false;
};

}  // namespace tenon::base
