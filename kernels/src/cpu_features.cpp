// CPU features by cpuid, each together with the OS support that it needs (XCR0).
#include <tenon/kernels/cpu_features.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tenon::kernels {

#if defined(__x86_64__)
namespace {

struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

/// All zero when the processor has no such leaf.
Cpuid cpuid(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

/// State that the operating system saves; read only when cpuid says that xgetbv exists.
unsigned xcr0() {
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool has(unsigned word, int bit) {
  return (word >> bit & 1u) != 0;
}

}  // namespace

CpuFeatures detect_cpu_features() {
  const Cpuid one = cpuid(1, 0), seven = cpuid(7, 0), seven_one = cpuid(7, 1);
  constexpr int kOsxsave = 27, kAvx = 28, kFma = 12;                                       // leaf 1, ecx
  constexpr int kAvx2 = 5, kAvx512f = 16, kAvx512dq = 17, kAvx512bw = 30, kAvx512vl = 31;  // leaf 7.0, ebx
  constexpr int kAmxBf16 = 22, kAmxTile = 24;                                              // leaf 7.0, edx
  constexpr int kAvx512Bf16 = 5;                                                           // leaf 7.1, eax
  constexpr unsigned kYmmState = 0x6, kZmmState = 0xe6, kTileState = 0x60000;

  CpuFeatures features;
  if (!has(one.ecx, kOsxsave)) return features;
  const unsigned saved = xcr0();
  features.avx2 =
      (saved & kYmmState) == kYmmState && has(one.ecx, kAvx) && has(one.ecx, kFma) && has(seven.ebx, kAvx2);
  features.avx512 = features.avx2 && (saved & kZmmState) == kZmmState && has(seven.ebx, kAvx512f) &&
                    has(seven.ebx, kAvx512dq) && has(seven.ebx, kAvx512bw) && has(seven.ebx, kAvx512vl);
  features.avx512_bf16 = features.avx512 && has(seven_one.eax, kAvx512Bf16);
  features.amx_bf16 =
      (saved & kTileState) == kTileState && has(seven.edx, kAmxTile) && has(seven.edx, kAmxBf16);
  return features;
}

bool request_amx_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl, and the number of the state
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

#else

bool request_amx_tiles() {
  return false;
}

CpuFeatures detect_cpu_features() {
  return {};
}

#endif

}  // namespace tenon::kernels
