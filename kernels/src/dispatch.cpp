// CPU features by cpuid, each together with the OS support that it needs (XCR0), and the table of kernel
// sets, best first.
#include <tenon/kernels/dispatch.hpp>

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

const KernelTable& kernels_portable();
const KernelTable& kernels_avx2();
const KernelTable& kernels_avx512();
const KernelTable& kernels_amx();

namespace {

struct Entry {
  std::string_view name;
  const KernelTable& (*table)();
  bool (*runs)(const CpuFeatures&);
};

// The build selects its sets (TENON_KERNEL_SETS).
constexpr Entry kEntries[] = {
#if TENON_HAS_KERNELS_AMX
    {"amx", kernels_amx,
     [](const CpuFeatures& f) { return f.avx512_bf16 && f.amx_bf16 && request_amx_tiles(); }},
#endif
#if TENON_HAS_KERNELS_AVX512
    {"avx512", kernels_avx512, [](const CpuFeatures& f) { return f.avx512; }},
#endif
#if TENON_HAS_KERNELS_AVX2
    {"avx2", kernels_avx2, [](const CpuFeatures& f) { return f.avx2; }},
#endif
#if TENON_HAS_KERNELS_PORTABLE
    {"portable", kernels_portable, [](const CpuFeatures&) { return true; }},
#endif
    {"reference", reference_kernels, [](const CpuFeatures&) { return true; }},
};

}  // namespace

std::vector<std::string_view> kernel_names(const CpuFeatures& features) {
  std::vector<std::string_view> names;
  for (const Entry& entry : kEntries)
    if (entry.runs(features)) names.push_back(entry.name);
  return names;
}

const KernelTable* select_kernels(std::string_view name, const CpuFeatures& features) {
  const bool any = name.empty() || name == "auto";
  for (const Entry& entry : kEntries)
    if ((any || entry.name == name) && entry.runs(features)) return &entry.table();
  return nullptr;
}

}  // namespace tenon::kernels
