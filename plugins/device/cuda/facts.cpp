#include "facts.hpp"

#include "probes.hpp"

#include "queue.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/elementwise.hpp>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

namespace tenon::cuda {
namespace {

#ifndef TENON_CUDA_EMULATED
struct KnownLibrary {
  const char* name;
  const char* file;
  const char* without;  ///< the replacement where it is absent
};
constexpr KnownLibrary kLibraries[] = {
    {"cuBLASLt", "libcublasLt.so.13", "products run on this device's own kernels"},
    {"cuFFT", "libcufft.so.12", "transforms run on this device's own kernels"},
    {"cuDNN", "libcudnn.so.9", "convolutions make windows, for products"},
    {"NCCL", "libnccl.so.2", "ranks exchange tensors through host memory"}};

/// Path where the loader found it; "" = nowhere.
std::string place_of(const char* file) {
  for (const std::string& name : {std::string(file), std::string("/usr/local/cuda/lib64/") + file}) {
    void* const handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) continue;
    link_map* map = nullptr;
    const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr;
    return known ? map->l_name : name;  // stays open: these libraries outlive their handles
  }
  return "";
}

void report_libraries(FactReport& report) {
  for (const KnownLibrary& library : kLibraries) {
    const std::string place = place_of(library.file);
    report.fact(library.name,
                place.empty() ? fmt::format("absent ({}): {}", library.file, library.without) : place);
  }
}

#endif

}  // namespace

int CudaFacts::preference() const {
#ifdef TENON_CUDA_EMULATED
  return 0;
#else
  return 100;
#endif
}

int CudaFacts::usable() const {
  return usable_devices(reason_);
}

std::string_view CudaFacts::reason() const {
  usable_devices(reason_);
  return reason_;
}

void CudaFacts::report(FactReport& report) {
#ifndef TENON_CUDA_EMULATED
  report.fact("driver", driver_text());
  report_libraries(report);
#endif
  const bool open = device_.query(Elementwise::kId) != nullptr;
  if (!open) return;
  report.fact("device", device_.features());
  probe_arithmetic(device_, report);
  probe_codes(device_, report);
  probe_transforms(device_, report);
  probe_convolutions(device_, report);
}

}  // namespace tenon::cuda
