// The calling thread's floating-point control word (rounding, exceptions, flush-to-zero), without its sticky
// status bits. A library linked with -ffast-math changes it on load, and every later result of the program
// with it.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tenon::plugin {

#if defined(__x86_64__)
inline constexpr const char* kFpControlName = "MXCSR";
inline std::uint64_t fp_control() {
  return _mm_getcsr() & ~0x3Fu;
}
inline void set_fp_control(std::uint64_t value) {
  _mm_setcsr(static_cast<unsigned>(value));
}
#elif defined(__aarch64__)
inline constexpr const char* kFpControlName = "FPCR";
inline std::uint64_t fp_control() {
  std::uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
inline void set_fp_control(std::uint64_t value) {
  asm volatile("msr fpcr, %0" : : "r"(value));
}
#else
inline constexpr const char* kFpControlName = "floating-point control";
inline std::uint64_t fp_control() {
  return 0;
}
inline void set_fp_control(std::uint64_t) {}
#endif

}  // namespace tenon::plugin
