// Loads one plugin file in this process: tag, dlopen, descriptor, init. Each stage refuses with
// Error(kPlugin), and says whether code of the plugin has run by then. A loaded library is pinned and stays
// until the process ends: objects, stored exceptions and thread-local destructors may refer to it
// (docs/plugins/abi.md).
#pragma once

#include "plugin/abi_tag.hpp"

#include <tenon/plugin_abi.h>

#include <filesystem>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tenon::plugin {

struct OpenPlugin {
  const tenon_plugin_v1_t* descriptor = nullptr;  ///< valid until the process ends
  AbiTag tag;
  std::filesystem::path file;  ///< canonical
};

/// Reads and compares the tag, then opens the file and checks its descriptor against the tag. Static
/// initialisers of the plugin run here, no other code of it.
OpenPlugin open_plugin(const std::filesystem::path& file, const AbiTag& host = host_abi_tag());

/// Runs init under the guard. `file` is for messages.
void init_plugin(const tenon_plugin_v1_t& descriptor, const std::filesystem::path& file);
/// Runs shutdown under the guard; Error(kPlugin) when it throws.
void shutdown_plugin(const tenon_plugin_v1_t& descriptor);

// The calling thread's floating-point control word (rounding, exceptions, flush-to-zero), without its sticky
// status bits. A library linked with -ffast-math changes it on load, and every later result of the program
// with it.

#if defined(__x86_64__)
inline constexpr const char* kFpControlName = "MXCSR";
inline std::uint64_t fp_control() {
  return _mm_getcsr() & ~0x3Fu;
}
inline void set_fp_control(std::uint64_t value) {
  _mm_setcsr(static_cast<unsigned>(value));
}
#elif defined(__aarch64__)
inline constexpr const char* kFpControlName = "FPCR";
inline std::uint64_t fp_control() {
  std::uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
inline void set_fp_control(std::uint64_t value) {
  asm volatile("msr fpcr, %0" : : "r"(value));
}
#else
inline constexpr const char* kFpControlName = "floating-point control";
inline std::uint64_t fp_control() {
  return 0;
}
inline void set_fp_control(std::uint64_t) {}
#endif

}  // namespace tenon::plugin
