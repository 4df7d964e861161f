#include "fake_nvml.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

// Written from NVIDIA's documentation and not from ../library.hpp, so that a wrong declaration there shows.
namespace {

enum : int { kOk = 0, kInvalidArgument = 2, kNotFound = 6 };

struct NvmlFieldValue {
  unsigned int fieldId;
  unsigned int scopeId;
  long long timestamp;
  long long latencyUsec;
  unsigned int valueType;
  int nvmlReturn;
  union {
    double dVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
  } value;
};

char a_gpu;
void* const kGpu = &a_gpu;

}  // namespace

extern "C" {

FakeNvml* fake_nvml() {
  static FakeNvml fake;
  return &fake;
}

int nvmlInit_v2() {
  if (fake_nvml()->init_result == kOk) ++fake_nvml()->users;
  return fake_nvml()->init_result;
}

int nvmlShutdown() {
  --fake_nvml()->users;
  return kOk;
}

const char* nvmlErrorString(int result) {
  return result == 3    ? "Not Supported"
         : result == 6  ? "Not Found"
         : result == 9  ? "Driver Not Loaded"
         : result == 15 ? "GPU is lost"
                        : "Invalid Argument";
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) {
  if (index >= static_cast<unsigned>(fake_nvml()->gpus)) return kInvalidArgument;
  fake_nvml()->gpu = std::to_string(index);
  *gpu = kGpu;
  return kOk;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** gpu) {
  if (std::strcmp(uuid, "GPU-1b2c") != 0) return kNotFound;
  fake_nvml()->gpu = uuid;
  *gpu = kGpu;
  return kOk;
}

int nvmlDeviceGetName(void* gpu, char* name, unsigned length) {
  std::snprintf(name, length, "Fake H100");
  return gpu == kGpu ? kOk : kInvalidArgument;
}

int nvmlDeviceGetFieldValues(void* gpu, int count, NvmlFieldValue* values) {
  if (gpu != kGpu || count != 1) return kInvalidArgument;
  FakeNvml& fake = *fake_nvml();
  fake.field = values->fieldId;
  fake.scope = values->scopeId;
  values->nvmlReturn = fake.field_result;
  values->valueType = fake.type;
  if (fake.type == 0) values->value.dVal = static_cast<double>(fake.milliwatts);
  if (fake.type == 1) values->value.uiVal = static_cast<unsigned>(fake.milliwatts);
  if (fake.type == 2) values->value.ulVal = fake.milliwatts;
  if (fake.type == 3) values->value.ullVal = fake.milliwatts;
  return fake.call_result;
}

int nvmlDeviceGetTotalEnergyConsumption(void* gpu, unsigned long long* millijoules) {
  *millijoules = fake_nvml()->millijoules;
  return gpu == kGpu ? fake_nvml()->energy_result : kInvalidArgument;
}

int nvmlDeviceGetEnforcedPowerLimit(void* gpu, unsigned* milliwatts) {
  *milliwatts = fake_nvml()->limit_mw;
  return gpu == kGpu ? fake_nvml()->limit_result : kInvalidArgument;
}

/// A mean over one second: nothing may ask for it.
int nvmlDeviceGetPowerUsage(void*, unsigned*) {
  std::abort();
}
}
