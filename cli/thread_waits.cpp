#include "thread_waits.hpp"

#include <cstdlib>

#include <unistd.h>

namespace tenon::cli {

void shorten_thread_waits(char** arguments) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // Set before exec, this is also what stops the second start from starting a third.
  if (::setenv("GOMP_SPINCOUNT", "2000", 1) == 0) ::execv("/proc/self/exe", arguments);
}

}  // namespace tenon::cli
