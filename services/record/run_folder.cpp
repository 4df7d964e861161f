// Attempts below a run's folder. An attempt is prepared under a private name and renamed to its number: a
// rename onto a folder that holds a file fails, which makes the number exclusive without a lock and through
// the file layer alone.
#include "record/run_folder.hpp"

#include "store/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <random>
#include <string_view>
#include <system_error>
#include <vector>

namespace tenon {
namespace {

constexpr const char* kLockFile = ".lock";
constexpr const char* kLatest = "latest";
constexpr const char* kFirstFile = "metrics.jsonl";
constexpr const char* kRunFiles[] = {kFirstFile, "config.resolved.toml", "manifest.json", "summary.json"};

/// The attempt that a folder name stands for, 0 when it is none ("01" and "1a" are not ours).
int attempt_number(std::string_view name) {
  int number = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool whole = code == std::errc() && end == name.data() + name.size();
  return whole && number > 0 && name.front() != '0' && name.front() != '+' ? number : 0;
}

std::string join(const std::string& folder, std::string_view name) {
  return folder.ends_with('/') ? folder + std::string(name) : fmt::format("{}/{}", folder, name);
}

std::string without_final_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

/// The process that links last looks again, so `latest` never stays at an older attempt.
void link_latest(FileSystem& files, const std::string& base) {
  for (int linked = 0, newest = newest_attempt(files, base); linked != newest;
       newest = newest_attempt(files, base)) {
    files.symlink(std::to_string(newest), join(base, kLatest));
    linked = newest;
  }
}

/// `latest` is ours to replace only where it is a link.
void refuse_occupied_latest(FileSystem& files, const std::string& base) {
  if (!files.exists(join(base, kLatest))) return;
  for (const DirectoryEntry& entry : files.list(base)) {
    if (entry.name != kLatest || entry.is_symlink) continue;
    fail_run(
        fmt::format("{} is a {} of yours, and a new attempt makes a link of that name; rename it, or choose "
                    "another run.name or --run-dir",
                    join(base, kLatest), entry.is_directory ? "folder" : "file"));
  }
}

bool is_attempt(FileSystem& files, const std::string& folder) {
  return std::ranges::any_of(kRunFiles, [&](const char* name) { return files.exists(join(folder, name)); });
}

/// " Runs in 'runs': a, b." or nothing when the parent cannot be listed.
std::string neighbours(FileSystem& files, const std::string& run) {
  const std::string parent = parent_path(run);
  std::vector<std::string> names;
  try {
    for (const DirectoryEntry& entry : files.list(parent)) {
      if (!entry.name.starts_with('.') && is_folder(files, parent, entry)) names.push_back(entry.name);
    }
  } catch (const FileError&) {
    return fmt::format(" There is no folder '{}' either.", parent);
  }
  constexpr std::size_t kMost = 12;
  if (names.empty()) return fmt::format(" There are no folders in '{}'.", parent);
  const std::size_t left_out = names.size() > kMost ? names.size() - kMost : 0;
  names.resize(names.size() - left_out);
  return fmt::format(" Folders in '{}': {}{}.", parent, fmt::join(names, ", "),
                     left_out > 0 ? fmt::format(" and {} more", left_out) : "");
}

}  // namespace

int newest_attempt(FileSystem& files, const std::string& run) {
  int newest = 0;
  for (const DirectoryEntry& entry : files.list(run)) {
    const int number = attempt_number(entry.name);
    if (number > newest && is_folder(files, run, entry)) newest = number;
  }
  return newest;
}

RunFolder create_run_folder(FileSystem& files, const std::string& base_path) {
  const std::string base = without_final_slashes(base_path);
  refuse_occupied_latest(files, base);
  files.make_directories(base);
  std::random_device random;
  const std::string prepared =
      join(base, fmt::format(".new-{}-{:08x}{:08x}", ::getpid(), random(), random()));
  files.make_directories(prepared);
  try {
    files.create(join(prepared, kFirstFile))->close();
    files.sync_directory(prepared);
    for (int attempt = newest_attempt(files, base) + 1;; ++attempt) {
      const std::string path = join(base, std::to_string(attempt));
      try {
        files.rename(prepared, path);
      } catch (const FileError& error) {
        // Taken by another process, or by a file of that name.
        if (error.code() == ENOTEMPTY || error.code() == EEXIST || error.code() == ENOTDIR) continue;
        throw;
      }
      files.sync_directory(base);
      link_latest(files, base);
      return {base, attempt, path};
    }
  } catch (...) {
    try {
      remove_tree(files, prepared);
    } catch (const FileError&) {  // the first error is the one to report
    }
    throw;
  }
}

RunFolder open_newest_attempt(FileSystem& files, const std::string& run_path) {
  const std::string run = without_final_slashes(run_path);
  int newest = 0;
  try {
    newest = newest_attempt(files, run);
  } catch (const FileError& error) {
    if (error.code() == ENOENT) {
      fail_config(fmt::format("no run at '{}': the folder does not exist.{}", run, neighbours(files, run)));
    }
    if (error.code() == ENOTDIR) {
      fail_config(
          fmt::format("no run at '{}': it is a file; give a run's folder or one of its attempts", run));
    }
    throw;
  }
  if (newest > 0) return {run, newest, join(run, std::to_string(newest))};
  if (!is_attempt(files, run)) {
    fail_config(
        fmt::format("no run at '{}': expected attempts (folders 1, 2, ...) or the files of one attempt ({}), "
                    "found neither",
                    run, fmt::join(kRunFiles, ", ")));
  }
  const std::string name = run.substr(run.find_last_of('/') + 1);
  return {parent_path(run), attempt_number(name), run};
}

std::uint64_t folder_number(const std::string& path) {
  struct statx found {};
  if (statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &found) != 0) return 0;
  // Numbers of removed folders are given again; the time of making tells them apart.
  std::uint64_t number = found.stx_ino;
  for (const std::uint64_t part :
       {std::uint64_t{found.stx_dev_major}, std::uint64_t{found.stx_dev_minor},
        static_cast<std::uint64_t>(found.stx_btime.tv_sec), std::uint64_t{found.stx_btime.tv_nsec}})
    number = (number ^ part) * 0x9e3779b97f4a7c15u;
  return number;
}

AttemptLock::AttemptLock(const std::string& folder, std::string_view advice)
    : path_(join(folder, kLockFile)) {
  while (!take(folder, advice)) {
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file_.get(), 0) != 0 ||
      ::pwrite(file_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    const int code = errno;
    ::unlink(path_.c_str());
    throw FileError(code, fmt::format("cannot write {}: {}", path_, std::generic_category().message(code)));
  }
}

bool AttemptLock::take(const std::string& folder, std::string_view advice) {
  const auto fail = [&](const char* what, int code) {
    throw FileError(code,
                    fmt::format("cannot {} {}: {}", what, path_, std::generic_category().message(code)));
  };
  file_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file_) fail("create", errno);
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) fail("lock", errno);
    char text[24] = {};
    int pid = 0;
    if (::pread(file_.get(), text, sizeof text - 1, 0) > 0) std::from_chars(text, text + sizeof text, pid);
    fail_run(fmt::format("{} is writing to '{}'; wait for it, or {}",
                         pid > 0 ? fmt::format("process {}", pid) : "another process", folder, advice));
  }
  // The process that held it may have removed the file between our open and our lock: then we hold a file
  // without a name.
  struct stat held {
  }, named{};
  if (::fstat(file_.get(), &held) == 0 && ::stat(path_.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
      held.st_dev == named.st_dev) {
    return true;
  }
  return false;
}

// Removed while it is still locked, so that no process takes a file that is about to go.
AttemptLock::~AttemptLock() {
  ::unlink(path_.c_str());
}

}  // namespace tenon
