// The error type of <tenon/error.hpp>. Destructors are anchored here so that the type information has one
// home: an exception thrown in a plugin must match a handler in the core.
#include <tenon/error.hpp>

TENON_ABI_BEGIN

Error::Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
Error::~Error() = default;

DeadlineError::DeadlineError(const std::string& message) : Error(ErrorKind::kRun, message) {}
DeadlineError::~DeadlineError() = default;

CancelledError::CancelledError(const std::string& message) : Error(ErrorKind::kRun, message) {}
CancelledError::~CancelledError() = default;

void fail_run(const std::string& message) {
  throw Error(ErrorKind::kRun, message);
}
void fail_config(const std::string& message) {
  throw Error(ErrorKind::kConfig, message);
}
void fail_plugin(const std::string& message) {
  throw Error(ErrorKind::kPlugin, message);
}

void fail_device_lost(const std::string& message) {
  throw Error(ErrorKind::kDeviceLost, message);
}

TENON_ABI_END
