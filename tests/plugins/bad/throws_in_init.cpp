// init throws although the plugin ABI forbids it.
#include <stdexcept>
#include "bad.hpp"
namespace {
int init(const tenon_host_v1*, tenon_error*) {
  throw std::runtime_error("no device of mine here");
}
constexpr tenon::PluginHooks kHooks{.init = init};
}  // namespace
TENON_PLUGIN(
    tenon::PluginInfo{.id = "bad.throws_in_init", .version = "1.0.0", .summary = "bad", .hooks = &kHooks},
    BadComponent)
