// The one error type. A message says what, where (file:line:col, or plugin:component:rank:step), expected and
// found, and what to do. The kind decides the program's exit status.
#pragma once

#include <tenon/abi.hpp>

#include <stdexcept>
#include <string>

TENON_ABI_BEGIN

/// Kind of failure; the value is the exit status of `tenon`.
enum class ErrorKind : int {
  kRun = 1,     ///< training itself: NaN loss, lost rank, disk
  kConfig = 2,  ///< usage or configuration
  kPlugin = 3,  ///< a plugin cannot be loaded or misbehaves
  /// A device is lost for good: after an error of the hardware or of a kernel, no call of this process can
  /// use it again. Its rank counts as dead, also for the launcher (`tenon launch --restarts`).
  kDeviceLost = 4,
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message);
  ~Error() override;

  ErrorKind kind() const noexcept { return kind_; }
  int exit_status() const noexcept { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

/// A call waited until its deadline. The message names the late party.
class DeadlineError : public Error {
 public:
  explicit DeadlineError(const std::string& message);
  ~DeadlineError() override;
};

/// The run was cancelled because another rank failed; the first error is reported, not this one.
class CancelledError : public Error {
 public:
  explicit CancelledError(const std::string& message);
  ~CancelledError() override;
};

[[noreturn]] void fail_run(const std::string& message);
[[noreturn]] void fail_config(const std::string& message);
[[noreturn]] void fail_plugin(const std::string& message);
/// For devices. `message` says in which call the device was lost, what the library said, and which device it
/// is; every later call repeats it. What the core knows (rank, step, newest checkpoint) is added on the way.
[[noreturn]] void fail_device_lost(const std::string& message);

TENON_ABI_END
