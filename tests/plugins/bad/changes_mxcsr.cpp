// Linked with -ffast-math, which sets flush-to-zero and denormals-are-zero for the whole program on load.
#include <xmmintrin.h>
#include "bad.hpp"
__attribute__((constructor)) static void flush_to_zero() {
  _mm_setcsr(_mm_getcsr() | 0x8040);
}
TENON_PLUGIN(tenon::PluginInfo{.id = "bad.changes_mxcsr", .version = "1.0.0", .summary = "bad"}, BadComponent)
