// The file layer: every file operation of the core passes one FileSystem, which tests replace by one that
// runs out of space, tears writes or crashes. Also the digests of files. Paths are UTF-8 text. Durability is
// explicit: nothing survives a power cut unless its file and its directory were synced.
#pragma once

#include <tenon/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// A failed file operation; the message names operation, path and the system's reason.
class FileError : public Error {
 public:
  FileError(int code, const std::string& message);
  ~FileError() override;
  /// errno of the operation: ENOSPC, EIO, ENOENT, ...
  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// A file that grows at its end. Destruction closes without an error; call close() to see it. One thread at a
/// time.
class WritableFile {
 public:
  virtual ~WritableFile();
  /// Writes all bytes or throws FileError; after an error the length is unknown.
  virtual void append(std::span<const std::byte> bytes) = 0;
  /// Returns once content and length are on the medium. Does not make the file's name durable.
  virtual void sync() = 0;
  virtual void close() = 0;
};

/// Random reads of a file; const methods may run concurrently unless an implementation says otherwise.
class ReadableFile {
 public:
  virtual ~ReadableFile();
  virtual std::int64_t size() const = 0;
  /// Fills `out` from `offset`; throws FileError when the file ends before.
  virtual void read(std::int64_t offset, std::span<std::byte> out) const = 0;
};

struct DirectoryEntry {
  std::string name;  ///< without the folder
  bool is_directory = false;
  bool is_symlink = false;
};

/// Operations on files. Every method throws FileError; all may be called from several threads at once.
class FileSystem {
 public:
  virtual ~FileSystem();
  /// Opens for writing, emptied if it exists. The folder must exist.
  virtual std::unique_ptr<WritableFile> create(const std::string& path) = 0;
  /// Opens for writing at the end, made if absent.
  virtual std::unique_ptr<WritableFile> append_to(const std::string& path) = 0;
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) = 0;
  /// Atomic; replaces a file, or an empty folder by a folder.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Removes a file, a symbolic link or an empty folder.
  virtual void remove(const std::string& path) = 0;
  /// Cuts the file to `size` bytes.
  virtual void truncate(const std::string& path, std::int64_t size) = 0;
  /// Makes names created, renamed and removed in this folder durable.
  virtual void sync_directory(const std::string& path) = 0;
  /// Makes the folder and its parents; existing ones are fine.
  virtual void make_directories(const std::string& path) = 0;
  /// Sorted by name, without "." and "..".
  virtual std::vector<DirectoryEntry> list(const std::string& path) = 0;
  virtual bool exists(const std::string& path) = 0;
  /// Makes `link` point to `target` (kept as text); an existing `link` is replaced atomically.
  virtual void symlink(const std::string& target, const std::string& link) = 0;
  /// Bytes that an unprivileged process may still write below `path`.
  virtual std::int64_t free_bytes(const std::string& path) = 0;
  /// Writes `path`.tmp, syncs it, renames it to `path` and syncs the folder: after a crash the old or the new
  /// text. make_posix_files() allocates nothing for it, so a steady slot may.
  virtual void write_text_atomically(const std::string& path, std::string_view text);
};

/// The operating system's files.
std::unique_ptr<FileSystem> make_posix_files();

/// The whole file as text; throws FileError when it is larger than `limit` bytes.
std::string read_text(FileSystem& files, const std::string& path, std::int64_t limit);
/// Removes a file or a folder with everything in it; absent is fine. Symbolic links are not followed.
void remove_tree(FileSystem& files, const std::string& path);
/// "a/b" of "a/b/c"; "." for a bare name, "/" for a name in the root.
std::string parent_path(const std::string& path);

/// CRC-32C (Castagnoli) of `bytes`; crc32c("123456789") is 0xE3069283.
std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept;
/// Continues a CRC: crc32c_extend(crc32c(a), b) is crc32c(a + b). The CRC of nothing is 0.
std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;
/// The rotated form that record files store beside their data (TensorBoard event files).
std::uint32_t crc32c_masked(std::uint32_t crc) noexcept;
/// Lower-case hexadecimal SHA-256, read in blocks.
std::string sha256_of_file(FileSystem& files, const std::string& path);
std::string sha256_of(std::span<const std::byte> bytes);
/// Lower-case hexadecimal xxh3-128 (most significant byte first).
std::string xxh3_128_of(std::span<const std::byte> bytes);

TENON_ABI_END
