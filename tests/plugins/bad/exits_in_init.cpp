// Ends the process in init.
#include <unistd.h>
#include "bad.hpp"
namespace {
int init(const tenon_host_v1*, tenon_error*) {
  ::_exit(9);
}
constexpr tenon::PluginHooks kHooks{.init = init};
}  // namespace
TENON_PLUGIN(
    tenon::PluginInfo{.id = "bad.exits_in_init", .version = "1.0.0", .summary = "bad", .hooks = &kHooks},
    BadComponent)
