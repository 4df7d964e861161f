// Run folders: runs/<name>/<attempt> with attempt = 1, 2, ... and `latest` naming the newest. Nothing here
// ever writes into an attempt that exists. What the files inside hold is the business of their own writers.
#pragma once

#include "base/file_descriptor.hpp"

#include <tenon/files.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

struct RunFolder {
  std::string base;  ///< runs/<name>, or what --run-dir says
  int attempt = 0;
  std::string path;  ///< base/<attempt>
};

/// The number of the newest attempt below `run`, 0 when there is none: folders, or links to folders, that are
/// called 1, 2, ... Throws FileError when `run` is no folder.
int newest_attempt(FileSystem& files, const std::string& run);

/// Makes the next attempt below `base` (made if absent) and points `latest` at the newest. The folder appears
/// under its number with an empty metrics.jsonl in one atomic step, so any number of processes may call this
/// at once and no two get the same attempt. Throws FileError; Error(kRun), before anything is made, when
/// `latest` is there and no link.
RunFolder create_run_folder(FileSystem& files, const std::string& base);

/// The attempt that `run` names: an attempt itself (or a link to one), or the newest below it. Throws
/// Error(kConfig) that says what was looked for, and which runs are beside it, when there is none.
RunFolder open_newest_attempt(FileSystem& files, const std::string& run);

/// A number of the folder itself: another one for a folder that was made anew under the same name. 0 where
/// the system tells nothing of it.
std::uint64_t folder_number(const std::string& path);

/// Keeps other processes of this machine from continuing the same attempt: a lock on its file `.lock`, which
/// holds the process id. Released by the destructor, which removes the file, or by the death of the process,
/// which leaves it without a lock.
class AttemptLock {
 public:
  /// Throws Error(kRun) that names the process which holds `folder` and ends in `advice`, FileError when
  /// nothing can be written there.
  explicit AttemptLock(const std::string& folder,
                       std::string_view advice = "start a new attempt without --resume");
  ~AttemptLock();
  AttemptLock(const AttemptLock&) = delete;
  AttemptLock& operator=(const AttemptLock&) = delete;

 private:
  bool take(const std::string& folder, std::string_view advice);

  std::string path_;
  base::FileDescriptor file_;
};

}  // namespace tenon
