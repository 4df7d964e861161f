// The one error type. A message says what, where (file:line:col, or plugin:component:rank:step), expected and
// found, and what to do. The kind decides the program's exit status.
#pragma once

#include <tenon/abi.hpp>

#include <stdexcept>
#include <string>

TENON_ABI_BEGIN

/// What failed; the value is the exit status of `tenon`.
enum class ErrorKind : int {
  kRun = 1,     ///< training itself: NaN loss, lost rank, disk
  kConfig = 2,  ///< usage or configuration
  kPlugin = 3,  ///< a plugin cannot be loaded or misbehaves
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

/// A call waited until its deadline. The message names who was late.
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

TENON_ABI_END
