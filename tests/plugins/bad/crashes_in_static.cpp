// Crashes while it is loaded.
#include <csignal>
#include <cstdio>
#include "bad.hpp"
__attribute__((constructor)) static void crash() {
  std::fputs("about to use a device that is not there\n", stderr);
  std::signal(SIGSEGV, SIG_DFL);  // also where a sanitizer has taken the signal
  std::raise(SIGSEGV);
}
TENON_PLUGIN(tenon::PluginInfo{.id = "bad.crashes_in_static", .version = "1.0.0", .summary = "bad"},
             BadComponent)
