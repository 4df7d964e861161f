// A FileSystem in memory that knows what a power cut keeps: file content since the last sync() of the file,
// and names since the last sync_directory() of the folder, are lost or kept as the caller of crash() asks.
// For tests only; renames are meant to stay inside one folder, as the checkpoint store does them.
#pragma once

#include <tenon/files.hpp>

#include <map>
#include <mutex>
#include <random>

namespace tenon::testing {

class MemoryFiles final : public FileSystem {
 public:
  /// Data that survives crash(): nothing unsynced, everything (a killed process), or a random prefix of the
  /// unsynced name operations of each folder and of the unsynced bytes of each file.
  enum class Survival { kSyncedOnly, kEverything, kRandom };

  MemoryFiles();

  /// The power cut. Open handles keep pointing at files that no longer have names.
  void crash(Survival survival, std::uint64_t seed);
  /// Content of a file for looking at and for damaging it on purpose; a change counts as durable.
  std::string content(const std::string& path);
  void overwrite(const std::string& path, const std::string& bytes);
  void set_free_bytes(std::int64_t bytes) { free_bytes_ = bytes; }

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
  struct Node;
  // Shared: a name, an open handle and the durable image of a folder may hold one file at once.
  using NodePointer = std::shared_ptr<Node>;
  using Names = std::map<std::string, NodePointer>;
  enum class Kind { kFile, kFolder, kLink };
  struct Node {
    Kind kind = Kind::kFile;
    std::string bytes;          // file content, or a link's target
    std::string durable_bytes;  // content at the last sync
    Names names;
    Names durable_names;
    std::vector<Names> unsynced;  // names after each operation since the last folder sync
  };
  class Writer;
  class Reader;

  NodePointer find(const std::string& path) const;
  NodePointer folder_of(const std::string& path) const;
  NodePointer file_for_writing(const std::string& path, bool emptied);
  static void record(Node& folder) { folder.unsynced.push_back(folder.names); }
  static void settle(Node& node, Survival survival, std::mt19937_64& random);

  mutable std::mutex mutex_;
  NodePointer root_;
  std::int64_t free_bytes_ = std::int64_t{1} << 50;
};

}  // namespace tenon::testing
