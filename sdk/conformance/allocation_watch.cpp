#include "allocation_watch.hpp"

#include "base/child_process.hpp"

#include <tenon/error.hpp>

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

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

/// A frame's place within the file that holds it.
struct Place {
  std::string file;
  std::ptrdiff_t offset = 0;
  std::string function;  ///< as far as the dynamic symbols say; "" = unknown
};

Place place_of(void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  Place place{info.dli_fname, static_cast<std::byte*>(address) - static_cast<std::byte*>(info.dli_fbase), ""};
  if (info.dli_sname == nullptr) return place;
  int status = 0;
  char* const plain = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  place.function = status == 0 ? plain : info.dli_sname;
  std::free(plain);
  return place;
}

std::string text_of(const Place& place) {
  const std::string where = fmt::format("{}+{:#x}", place.file, place.offset);
  return place.function.empty() ? where : fmt::format("{} ({})", place.function, where);
}

/// "FUNCTION at FILE:LINE" of each offset, from the debug information by addr2line (binutils); "" where that
/// is missing or does not know.
std::vector<std::string> lines_of(const std::string& file, const std::vector<std::ptrdiff_t>& offsets) {
  base::ChildRequest request{
      .program = "addr2line", .arguments = {"-C", "-f", "-p", "-e", file}, .environment = {"LD_PRELOAD="}};
  // The call itself is before the address to which it returns.
  for (const std::ptrdiff_t offset : offsets) request.arguments.push_back(fmt::format("{:#x}", offset - 1));
  std::vector<std::string> lines;
  try {
    std::istringstream output(base::run_child(request, std::chrono::seconds(10)).words);
    for (std::string line; std::getline(output, line);)
      lines.push_back(line.find(" at ??") == std::string::npos && !line.starts_with("??") ? line : "");
  } catch (const Error&) {  // no addr2line
  }
  // Anything else than one line per offset is a complaint.
  if (lines.size() != offsets.size()) lines.assign(offsets.size(), "");
  return lines;
}

std::string stack(const AllocationWatch::Call& call, const std::string& file) {
  std::vector<Place> places;
  std::vector<std::ptrdiff_t> own;  // frames of the file under test
  for (int i = 1; i < std::min(call.depth, 10); ++i) {
    places.push_back(place_of(call.frames[i]));
    if (file_of(call.frames[i]) != file) continue;
    places.back().file = file;
    own.push_back(places.back().offset);
  }
  const std::vector<std::string> known = lines_of(file, own);
  std::string text;
  auto line = known.begin();
  for (const Place& place : places) {
    const std::string found = place.file == file ? *line++ : "";
    text += "\n    " + (found.empty() ? text_of(place) : found);
  }
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
      if (from == file) return stack(call, file);
      break;
    }
  }
  return "";
}

}  // namespace tenon::conformance
