#include "library.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <dlfcn.h>

namespace tenon::nvml {

// The library stays loaded: it keeps state with the driver that outlives nvmlShutdown.
Library::Library(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    fail_run(fmt::format("NVML cannot be opened: {}. NVIDIA's driver brings it (Debian: libnvidia-ml1)",
                         why != nullptr ? why : path));
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) fail_run(fmt::format("{} has no {}; it is not NVML, or too old", path, name));
  };
  find(api_.init, "nvmlInit_v2");
  find(api_.shutdown, "nvmlShutdown");
  find(api_.error_string, "nvmlErrorString");
  find(api_.handle_by_index, "nvmlDeviceGetHandleByIndex_v2");
  find(api_.handle_by_uuid, "nvmlDeviceGetHandleByUUID");
  find(api_.name, "nvmlDeviceGetName");
  find(api_.field_values, "nvmlDeviceGetFieldValues");
  find(api_.total_energy, "nvmlDeviceGetTotalEnergyConsumption");
  find(api_.enforced_power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  require(api_.init(), "NVML does not start");
}

Library::~Library() {
  api_.shutdown();
}

std::string Library::words(Result result) const {
  const char* const text = api_.error_string(result);
  return fmt::format("{} (NVML's code {})", text != nullptr ? text : "unknown error", result);
}

void Library::require(Result result, const std::string& what) const {
  if (result != kSuccess) fail_run(fmt::format("{}: {}", what, words(result)));
}

}  // namespace tenon::nvml
