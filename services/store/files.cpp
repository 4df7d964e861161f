// Files: what every FileSystem shares, and the FileSystem on POSIX calls.
#include <tenon/files.hpp>

#include "base/digest_cache.hpp"
#include "base/file_descriptor.hpp"
#include "store/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

TENON_ABI_BEGIN

// Code that every FileSystem shares: errors, whole-file text, atomic replacement, removal of trees.

FileError::FileError(int code, const std::string& message) : Error(ErrorKind::kRun, message), code_(code) {}
FileError::~FileError() = default;

WritableFile::~WritableFile() = default;
ReadableFile::~ReadableFile() = default;
FileSystem::~FileSystem() = default;

std::string read_text(FileSystem& files, const std::string& path, std::int64_t limit) {
  const std::unique_ptr<ReadableFile> file = files.open(path);
  const std::int64_t size = file->size();
  if (size > limit) {
    throw FileError(EFBIG, path + " has " + std::to_string(size) + " bytes; at most " +
                               std::to_string(limit) + " are expected here");
  }
  std::string text(size, '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void FileSystem::write_text_atomically(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  const std::unique_ptr<WritableFile> file = create(temporary);
  file->append(std::as_bytes(std::span(text)));
  file->sync();
  file->close();
  rename(temporary, path);
  sync_directory(parent_path(path));
}

namespace {

void remove_folder(FileSystem& files, const std::string& path) {
  for (const DirectoryEntry& entry : files.list(path)) {
    const std::string child = path + "/" + entry.name;
    if (entry.is_directory) {
      remove_folder(files, child);
    } else {
      files.remove(child);
    }
  }
  files.remove(path);
}

}  // namespace

void remove_tree(FileSystem& files, const std::string& path) {
  // The kind of the name comes from its folder: listing a link would list, and then empty, the folder that it
  // points to.
  const std::size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) fail_run("refusing to remove the root folder");
  const std::string bare = path.substr(0, end + 1);
  if (!files.exists(bare)) return;
  const std::string name = bare.substr(bare.find_last_of('/') + 1);
  for (const DirectoryEntry& entry : files.list(parent_path(bare))) {
    if (entry.name != name) continue;
    if (entry.is_directory) {
      remove_folder(files, bare);
    } else {
      files.remove(bare);
    }
  }
}

static std::string_view parent_view(std::string_view path) {
  const std::size_t end = path.find_last_not_of('/');
  const std::size_t slash = path.find_last_of('/', end);
  if (slash == std::string_view::npos) return ".";
  const std::size_t last = path.find_last_not_of('/', slash);
  return last == std::string_view::npos ? "/" : path.substr(0, last + 1);
}

std::string parent_path(const std::string& path) {
  return std::string(parent_view(path));
}

TENON_ABI_END

namespace tenon {

bool is_folder(FileSystem& files, const std::string& folder, const DirectoryEntry& entry) {
  if (!entry.is_symlink) return entry.is_directory;
  try {
    files.list(folder + "/" + entry.name);
    return true;
  } catch (const FileError&) {
    return false;
  }
}

}  // namespace tenon

TENON_ABI_BEGIN

// FileSystem on POSIX calls. Interrupted calls are repeated, short writes continued, and every error carries
// the operation, the path and the system's text.

namespace {

[[noreturn]] void fail_file(const std::string& what, const std::string& path, int code) {
  throw FileError(code, "cannot " + what + " " + path + ": " + std::generic_category().message(code));
}

template <typename Call>
auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int open_descriptor(const std::string& what, const std::string& path, int flags) {
  const int descriptor = retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0644); });
  if (descriptor < 0) fail_file(what, path, errno);
  return descriptor;
}

/// Bytes that were written of `bytes`.
std::size_t write_some(int descriptor, std::span<const std::byte> bytes, const std::string& path) {
  const ssize_t written = retry([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
  if (written < 0) fail_file("write " + std::to_string(bytes.size()) + " bytes to", path, errno);
  return static_cast<std::size_t>(written);
}

void sync_descriptor(int descriptor, const std::string& path) {
  if (retry([&] { return ::fdatasync(descriptor); }) != 0) fail_file("sync", path, errno);
}

/// After EINTR Linux has released the descriptor; closing again could hit another file.
void close_descriptor(base::FileDescriptor& file, const std::string& path) {
  const int descriptor = file.release();
  if (descriptor >= 0 && ::close(descriptor) != 0 && errno != EINTR) fail_file("close", path, errno);
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int descriptor) : path_(std::move(path)), file_(descriptor) {}

  void append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const std::size_t written = write_some(file_.get(), bytes.first(std::min(bytes.size(), kPiece)), path_);
      bytes = bytes.subspan(written);
      waiting_ += written;
      if (waiting_ >= kPiece) start_writing();
    }
  }

  void sync() override { sync_descriptor(file_.get(), path_); }
  void close() override { close_descriptor(file_, path_); }

 private:
  // Large enough for the largest units of the page cache: in pieces of 1 MiB the same bytes took twice as
  // long.
  static constexpr std::size_t kPiece = std::size_t{8} << 20;

  // The medium works while the rest of a large file still comes, and sync() finds little left to do. Only a
  // hint: what fails here, sync() reports.
  void start_writing() {
#if defined(SYNC_FILE_RANGE_WRITE)
    static_cast<void>(::sync_file_range(file_.get(), 0, 0, SYNC_FILE_RANGE_WRITE));
#endif
    waiting_ = 0;
  }

  std::string path_;
  base::FileDescriptor file_;
  std::size_t waiting_ = 0;  // bytes that only the page cache has been told of
};

class PosixReadableFile final : public ReadableFile, public base::DescribedFile {
 public:
  PosixReadableFile(std::string path, int descriptor) : path_(std::move(path)), file_(descriptor) {
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) fail_file("read the size of", path_, errno);
    if (S_ISDIR(status.st_mode)) fail_file("read", path_, EISDIR);
    size_ = status.st_size;
  }

  std::int64_t size() const override { return size_; }
  int descriptor() const override { return file_.get(); }

  void read(std::int64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t got = retry([&] { return ::pread(file_.get(), out.data(), out.size(), offset); });
      if (got < 0) fail_file("read", path_, errno);
      if (got == 0) {
        throw FileError(EIO, path_ + " ends at byte " + std::to_string(offset) + "; " +
                                 std::to_string(out.size()) + " more bytes were expected");
      }
      out = out.subspan(got);
      offset += got;
    }
  }

 private:
  std::string path_;
  base::FileDescriptor file_;
  std::int64_t size_ = 0;
};

class PosixFiles final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return std::make_unique<PosixWritableFile>(path,
                                               open_descriptor("create", path, O_WRONLY | O_CREAT | O_TRUNC));
  }

  std::unique_ptr<WritableFile> append_to(const std::string& path) override {
    return std::make_unique<PosixWritableFile>(
        path, open_descriptor("append to", path, O_WRONLY | O_CREAT | O_APPEND));
  }

  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    return std::make_unique<PosixReadableFile>(path, open_descriptor("open", path, O_RDONLY));
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) fail_file("rename " + from + " to", to, errno);
  }

  void remove(const std::string& path) override {
    if (::unlink(path.c_str()) == 0) return;
    // Linux reports EISDIR for a folder, other systems EPERM.
    const int code = errno;
    if ((code == EISDIR || code == EPERM) && ::rmdir(path.c_str()) == 0) return;
    fail_file("remove", path, code == EISDIR ? errno : code);
  }

  void truncate(const std::string& path, std::int64_t size) override {
    if (retry([&] { return ::truncate(path.c_str(), size); }) != 0) fail_file("truncate", path, errno);
  }

  void sync_directory(const std::string& path) override {
    const base::FileDescriptor folder(open_descriptor("open folder", path, O_RDONLY | O_DIRECTORY));
    if (retry([&] { return ::fsync(folder.get()); }) != 0) fail_file("sync folder", path, errno);
  }

  void write_text_atomically(const std::string& path, std::string_view text) override {
    thread_local std::string temporary, folder;  // their memory serves the next text
    temporary.assign(path).append(".tmp");
    base::FileDescriptor file(open_descriptor("create", temporary, O_WRONLY | O_CREAT | O_TRUNC));
    for (auto bytes = std::as_bytes(std::span(text)); !bytes.empty();)
      bytes = bytes.subspan(write_some(file.get(), bytes, temporary));
    sync_descriptor(file.get(), temporary);
    close_descriptor(file, temporary);
    rename(temporary, path);
    sync_directory(folder.assign(parent_view(path)));
  }

  void make_directories(const std::string& path) override {
    if (path.empty() || ::mkdir(path.c_str(), 0755) == 0) return;
    if (errno == ENOENT) {
      make_directories(parent_path(path));
      if (::mkdir(path.c_str(), 0755) == 0) return;
    }
    const int code = errno;
    struct stat status {};
    if (code == EEXIST && ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return;
    fail_file("make folder", path, code);
  }

  std::vector<DirectoryEntry> list(const std::string& path) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
    if (!folder) fail_file("list", path, errno);
    std::vector<DirectoryEntry> entries;
    for (;;) {
      errno = 0;
      const dirent* found = ::readdir(folder.get());
      if (found == nullptr) break;
      const std::string name = found->d_name;
      if (name == "." || name == "..") continue;
      struct stat status {};
      if (::fstatat(::dirfd(folder.get()), found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) continue;  // removed since it was listed
        fail_file("read the type of", path + "/" + name, errno);
      }
      entries.push_back({name, S_ISDIR(status.st_mode), S_ISLNK(status.st_mode)});
    }
    if (errno != 0) fail_file("list", path, errno);
    std::ranges::sort(entries, {}, &DirectoryEntry::name);
    return entries;
  }

  bool exists(const std::string& path) override {
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    fail_file("look for", path, errno);
  }

  void symlink(const std::string& target, const std::string& link) override {
    // A link cannot be overwritten in place; a private name is made and renamed over it.
    const std::string temporary =
        link + ".tmp" + std::to_string(::getpid()) + "." + std::to_string(links_.fetch_add(1));
    if (::symlink(target.c_str(), temporary.c_str()) != 0) fail_file("link", temporary, errno);
    if (::rename(temporary.c_str(), link.c_str()) != 0) {
      const int code = errno;
      ::unlink(temporary.c_str());
      fail_file("link", link, code);
    }
  }

  std::int64_t free_bytes(const std::string& path) override {
    struct statvfs status {};
    if (retry([&] { return ::statvfs(path.c_str(), &status); }) != 0) {
      fail_file("read the free space of", path, errno);
    }
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(status.f_bavail, status.f_frsize, &bytes)) {
      return std::numeric_limits<std::int64_t>::max();
    }
    return bytes;
  }

 private:
  std::atomic<unsigned> links_{0};
};

}  // namespace

std::unique_ptr<FileSystem> make_posix_files() {
  return std::make_unique<PosixFiles>();
}

TENON_ABI_END
