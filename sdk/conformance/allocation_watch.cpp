#include "allocation_watch.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace tenon::conformance {
namespace {

namespace fs = std::filesystem;

std::string file_of(void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  std::error_code ignored;
  const fs::path path = fs::canonical(info.dli_fname, ignored);
  return ignored ? std::string(info.dli_fname) : path.string();
}

/// Frames that do not identify the caller: the watch itself, the C and the C++ library.
bool is_plumbing(const std::string& file) {
  const std::string name = fs::path(file).filename().string();
  return name.starts_with("libtenon_watch_malloc") || name.starts_with("libstdc++") ||
         name.starts_with("libc.so") || name.starts_with("libc-");
}

std::string stack(const AllocationWatch::Call& call) {
  std::string text;
  char** const names = ::backtrace_symbols(call.frames, call.depth);
  for (int i = 1; names != nullptr && i < std::min(call.depth, 10); ++i)
    text += std::string("\n    ") + names[i];
  std::free(names);
  return text;
}

}  // namespace

const AllocationWatch* allocation_watch() {
  return static_cast<const AllocationWatch*>(::dlsym(RTLD_DEFAULT, kWatchSymbol));
}

std::string first_allocation_from(const AllocationWatch& watch, const std::string& file) {
  for (int i = 0; i < std::min(watch.count(), AllocationWatch::kMost); ++i) {
    const AllocationWatch::Call& call = *watch.call(i);
    for (int frame = 0; frame < call.depth; ++frame) {
      const std::string from = file_of(call.frames[frame]);
      if (from.empty() || is_plumbing(from)) continue;
      if (from == file) return stack(call);
      break;
    }
  }
  return "";
}

}  // namespace tenon::conformance
