// Files that are made from a data file once and kept: packed rows, encoded text. Here is what all of them
// share: when they are still those of their source, where they are, and that one process or thread makes
// them while others wait. The caller reads and writes them.
#pragma once

#include <tenon/files.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

/// Size and time of change. A file whose identity is the same counts as unchanged.
struct FileIdentity {
  std::int64_t size = 0, changed_ns = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// Throws Error(kConfig) that begins with "data file '...'".
FileIdentity file_identity(const std::string& path);

/// FOLDER/NAME.DIGEST.SUFFIX of a source, with the digest of its path and of `recipe`, all else that decides
/// the content. An empty folder is "tenon-cache" beside the source.
std::string packed_path(const std::string& source, const std::string& folder, std::string_view recipe,
                        std::string_view suffix);

struct PackedFile {
  std::string owner;              ///< component in messages: "data.criteo"
  std::string source;             ///< path
  std::string path;               ///< complete where it exists
  std::string growing;            ///< file that grows while it is made
  std::string held;               ///< in messages: "its packed rows, 160 bytes each"
  double deadline = 0;            ///< of a wait in which nothing is written, in seconds
  double bytes_per_second = 1e7;  ///< of the source: so slow may a pass be that writes nothing
};

/// `open` returns whether the file is there and of a source with this identity; `pack` makes it. Calls open,
/// and where it gives false pack and open again, pack under a lock at path + ".lock" that the system releases
/// when the process dies. An error of pack removes `growing`. Throws Error(kConfig) where the folder takes
/// nothing, Error(kRun) when a wait times out or the source changes meanwhile.
void open_packed(FileSystem& files, const PackedFile& file,
                 const std::function<bool(const FileIdentity&)>& open,
                 const std::function<void(const FileIdentity&)>& pack);

TENON_ABI_END
