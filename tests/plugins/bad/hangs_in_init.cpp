// init waits for ever.
#include <unistd.h>
#include "bad.hpp"
namespace {
int init(const tenon_host_v1*, tenon_error*) {
  while (true) ::pause();
}
constexpr tenon::PluginHooks kHooks{.init = init};
}  // namespace
TENON_PLUGIN(
    tenon::PluginInfo{.id = "bad.hangs_in_init", .version = "1.0.0", .summary = "bad", .hooks = &kHooks},
    BadComponent)
