// The table of kernel sets, best first (contract: dispatch.hpp).
#include <tenon/kernels/dispatch.hpp>

namespace tenon::kernels {

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
