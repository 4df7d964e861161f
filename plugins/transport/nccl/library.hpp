// The NCCL library of this process: opened at run time, never linked, so that the program and this plugin run
// where it is absent, and report that when a run asks for it.
#pragma once

#include "nccl_api.hpp"

#include <string>

namespace tenon::nccl_transport {

class Library {
 public:
  /// `path`: of the library; "" = libnccl.so.2 in the system loader's search path. Throws Error(kConfig), in
  /// one line with the attempted paths, for a file that is absent, is not NCCL, or is too old.
  explicit Library(const std::string& path);
  // It stays loaded, because its own threads may still run in it.
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const Api& api() const { return api_; }
  const std::string& version() const { return version_; }  ///< "2.28.9"
  bool shrinks() const { return api_.CommShrink != nullptr && api_.CommRevoke != nullptr; }

  /// Throws Error(kRun) that begins "transport.nccl: ncclCALL" and contains the library's own message, unless
  /// `result` is success or in progress. `comm` may be null.
  void check(int result, const char* call, Comm comm) const;
  /// "unhandled cuda error (1): Cuda failure 'out of memory'".
  std::string text(int result, Comm comm) const;

 private:
  Api api_{};
  std::string version_;
};

}  // namespace tenon::nccl_transport
