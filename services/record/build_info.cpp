// The only file that sees CMake's definitions about the build, so that a new commit recompiles little.
#include "record/build_info.hpp"

namespace tenon {

BuildInfo build_info() {
  return {.version = TENON_BUILD_VERSION,
          .git = TENON_BUILD_GIT,
          .git_dirty = TENON_BUILD_GIT_DIRTY != 0,
          .compiler = TENON_BUILD_COMPILER,
          .flags = TENON_BUILD_FLAGS,
          .build_type = TENON_BUILD_TYPE};
}

}  // namespace tenon
