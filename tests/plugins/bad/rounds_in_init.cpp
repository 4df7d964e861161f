// Leaves the rounding mode changed.
#include <xmmintrin.h>
#include "bad.hpp"
namespace {
int init(const tenon_host_v1*, tenon_error*) {
  _mm_setcsr(_mm_getcsr() | 0x6000);
  return 0;
}
constexpr tenon::PluginHooks kHooks{.init = init};
}  // namespace
TENON_PLUGIN(
    tenon::PluginInfo{.id = "bad.rounds_in_init", .version = "1.0.0", .summary = "bad", .hooks = &kHooks},
    BadComponent)
