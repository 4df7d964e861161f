// The two sides of counting allocations: libtenon_watch_malloc.so, which is preloaded into the child and sees
// malloc and its kin, and the check, which finds it by name. Without the library nothing is counted.
#pragma once

#include <string>

namespace tenon::conformance {

/// Interface of the library, found with dlsym(RTLD_DEFAULT, ...).
inline constexpr const char* kWatchSymbol = "tenon_allocation_watch";

/// Calls of malloc by all threads while the window is open.
struct AllocationWatch {
  static constexpr int kFrames = 24;
  static constexpr int kMost = 4096;
  struct Call {
    void* frames[kFrames];
    int depth;
  };
  void (*open)();
  void (*close)();
  /// Calls seen so far; only the first kMost are kept.
  int (*count)();
  const Call* (*call)(int index);
};

/// Null when the library was not preloaded.
const AllocationWatch* allocation_watch();

/// The first kept call that came from `file` itself and not from a library beneath it, as a stack; "" = none.
/// Frames of `file` name file and line where there is debug information.
std::string first_allocation_from(const AllocationWatch& watch, const std::string& file);

}  // namespace tenon::conformance
