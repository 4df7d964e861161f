// Identity of this build of the program; the values come from CMake at configure time.
#pragma once

#include <string>

namespace tenon {

struct BuildInfo {
  std::string version;     ///< "0.1.0"
  std::string git;         ///< `git describe --always --tags` of the sources, "unknown" without git
  bool git_dirty = false;  ///< tracked files differed from that commit
  std::string compiler;    ///< "GNU 12.2.0"
  std::string flags;       ///< of C++ files, build type's included
  std::string build_type;  ///< "Release"
};

BuildInfo build_info();

}  // namespace tenon
