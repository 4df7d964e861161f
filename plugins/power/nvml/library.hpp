// NVML: the subset of its interface that this plugin uses, and the library of this process. NVIDIA's header
// is no package of Debian; names and values are those of nvml.h 12, and nothing here sets anything.
#pragma once

#include <cstdint>
#include <string>

namespace tenon::nvml {

/// nvmlReturn_t: 0 is success.
using Result = int;
inline constexpr Result kSuccess = 0, kNotSupported = 3;

/// nvmlDevice_t.
using Gpu = struct nvmlDevice_st*;

/// nvmlValueType_t.
enum ValueType : unsigned { kDouble = 0, kUnsigned = 1, kUnsignedLong = 2, kUnsignedLongLong = 3 };

/// nvmlFieldValue_t.
struct FieldValue {
  unsigned field = 0;  ///< set by the caller, as scope
  unsigned scope = 0;
  long long timestamp_us = 0, latency_us = 0;
  unsigned type = 0;  ///< ValueType
  Result result = 0;  ///< of this field; the value is undefined unless it is kSuccess
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long as_unsigned_long;
    unsigned long long as_unsigned_long_long = 0;
  };
};
static_assert(sizeof(FieldValue) == 40);

/// NVML_FI_DEV_POWER_INSTANT: milliwatts now. Field 185 and nvmlDeviceGetPowerUsage are means over a second
/// on present GPUs, in which the swings of a step are lost.
inline constexpr unsigned kPowerInstant = 186;
/// The GPU alone; 1 is the module, where it has a processor as well.
inline constexpr unsigned kGpuScope = 0;

struct Api {
  Result (*init)() = nullptr;
  Result (*shutdown)() = nullptr;
  const char* (*error_string)(Result) = nullptr;
  Result (*handle_by_index)(unsigned, Gpu*) = nullptr;
  Result (*handle_by_uuid)(const char*, Gpu*) = nullptr;
  Result (*name)(Gpu, char*, unsigned) = nullptr;
  Result (*field_values)(Gpu, int, FieldValue*) = nullptr;
  Result (*total_energy)(Gpu, unsigned long long*) = nullptr;  ///< millijoules since the driver was loaded
  Result (*enforced_power_limit)(Gpu, unsigned*) = nullptr;    ///< milliwatts
};

/// NVML, initialised. It counts its users, so several sources of a process may each have one.
class Library {
 public:
  /// Throws Error(kRun) where the library is absent, has not all functions, or finds no driver.
  explicit Library(const std::string& path);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const Api& api() const { return api_; }
  /// Throws Error(kRun) with `what` and NVML's own words unless `result` is success.
  void require(Result result, const std::string& what) const;
  std::string words(Result result) const;

 private:
  Api api_;
};

}  // namespace tenon::nvml
