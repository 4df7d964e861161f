// A whole file of the operating system as text, also one of /proc, which has no size. Where a limit, errors
// with a reason, or another file system matter, see read_text in <tenon/files.hpp>.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace tenon::base {

/// None when it cannot be opened.
inline std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace tenon::base
