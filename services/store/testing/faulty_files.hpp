// A FileSystem around another one that fails on purpose: the k-th operation, all from the k-th on (the
// process is gone), after a budget of bytes (disk full), or in the middle of a write; or it really ends the
// process there. Counts operations, so
// that a test can first record a run and then fail each of its operations in turn. For tests only.
#pragma once

#include <tenon/files.hpp>

#include <mutex>

namespace tenon::testing {

struct FaultPlan {
  std::int64_t fail_at = -1;  ///< 0-based operation that fails; -1 = none
  int code = 5;               ///< errno of that failure (EIO)
  bool torn = false;          ///< if that operation is a write, its first half reaches the file
  bool dead_after = false;    ///< every later operation fails too
  bool kill = false;          ///< SIGKILL in place of the failure
  std::int64_t byte_budget =
      -1;                   ///< bytes that may still be written; the write that passes it is cut and ENOSPC
  double slow_seconds = 0;  ///< each write takes this long
};

class FaultyFiles final : public FileSystem {
 public:
  explicit FaultyFiles(FileSystem& inner) : inner_(inner) {}

  void arm(const FaultPlan& plan);
  /// Operations since arm().
  std::int64_t operations() const;
  /// "append step-1.tmp/rank0.safetensors", one per operation since arm().
  std::vector<std::string> trace() const;
  std::int64_t bytes_written() const;

  std::unique_ptr<WritableFile> create(const std::string& path) override;
  std::unique_ptr<WritableFile> append_to(const std::string& path) override;
  std::unique_ptr<ReadableFile> open(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove(const std::string& path) override;
  void truncate(const std::string& path, std::int64_t size) override;
  void sync_directory(const std::string& path) override;
  void make_directories(const std::string& path) override;
  std::vector<DirectoryEntry> list(const std::string& path) override;
  bool exists(const std::string& path) override;
  void symlink(const std::string& target, const std::string& link) override;
  std::int64_t free_bytes(const std::string& path) override;

 private:
  class Writer;
  class Reader;
  // Counts one operation and throws if the plan says so; `torn` tells a write to write only half.
  void step(const char* what, const std::string& path, bool* torn);
  [[noreturn]] void fail(const std::string& what) const;  // under the lock
  [[noreturn]] void fail_torn(const std::string& path) const;
  double slow_seconds() const;
  std::int64_t take_budget(std::int64_t wanted);

  FileSystem& inner_;
  mutable std::mutex mutex_;
  FaultPlan plan_;
  std::int64_t operations_ = 0;
  std::int64_t bytes_written_ = 0;
  std::vector<std::string> trace_;
};

}  // namespace tenon::testing
