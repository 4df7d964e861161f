// Keeps two processes from working on one study: both would make the same runs, and each would read those of
// the other half made. A lock of the kernel on DIR/study.lock, which ends with the process that holds it,
// however that ends. Readers of a study (`tenon report`) do not need it.
#pragma once

#include "base/file_descriptor.hpp"

#include <chrono>
#include <string>

namespace tenon::ab {

class StudyLock {
 public:
  /// The folder exists. A holder that is about to end has `patience`; after that throws Error(kRun), which
  /// names the folder, the process that holds the lock, and what to do.
  explicit StudyLock(const std::string& folder, std::chrono::milliseconds patience = kPatience);
  static constexpr std::chrono::milliseconds kPatience{500};

 private:
  base::FileDescriptor file_;  ///< closed on exec: the runs do not inherit the lock
};

}  // namespace tenon::ab
