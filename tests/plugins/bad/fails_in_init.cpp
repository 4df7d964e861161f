// init fails without a message.
#include "bad.hpp"
namespace {
int init(const tenon_host_v1*, tenon_error*) {
  return 1;
}
constexpr tenon::PluginHooks kHooks{.init = init};
}  // namespace
TENON_PLUGIN(
    tenon::PluginInfo{.id = "bad.fails_in_init", .version = "1.0.0", .summary = "bad", .hooks = &kHooks},
    BadComponent)
