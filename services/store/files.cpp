// Code that every FileSystem shares: errors, whole-file text, atomic replacement, removal of trees.
#include <tenon/files.hpp>

#include "store/links.hpp"

#include <cerrno>

TENON_ABI_BEGIN

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
  std::string text(static_cast<std::size_t>(size), '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_text_atomically(FileSystem& files, const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  const std::unique_ptr<WritableFile> file = files.create(temporary);
  file->append(std::as_bytes(std::span(text)));
  file->sync();
  file->close();
  files.rename(temporary, path);
  files.sync_directory(parent_path(path));
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

std::string parent_path(const std::string& path) {
  const std::size_t end = path.find_last_not_of('/');
  const std::size_t slash = path.find_last_of('/', end);
  if (slash == std::string::npos) return ".";
  const std::size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
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
