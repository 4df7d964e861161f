// A lock of the kernel on a file, which ends with the process that holds it, however that ends. The file
// stays: one that is removed could be locked by one process and made anew by the next. Its text is the number
// of the process, for the messages of others alone.
#pragma once

#include "base/file_descriptor.hpp"

#include <chrono>
#include <functional>
#include <string>

namespace tenon::ab {

class FileLock {
 public:
  /// The folder of `path` exists. A holder that is about to end has `patience`; after that throws Error(kRun)
  /// with the text of `busy`, which is given the holder's number, 0 where the file does not say.
  FileLock(const std::string& path, std::chrono::milliseconds patience,
           const std::function<std::string(int holder)>& busy);

 private:
  base::FileDescriptor file_;  ///< closed on exec: children do not inherit the lock
};

}  // namespace tenon::ab
