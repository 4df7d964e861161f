// A fake NVML for tests: the functions of library.hpp over numbers that a test sets.
#pragma once

#include <string>

struct FakeNvml {
  int init_result = 0;
  int gpus = 2;
  int call_result = 0;   ///< of nvmlDeviceGetFieldValues
  int field_result = 0;  ///< of the field in it
  int energy_result = 0, limit_result = 0;
  unsigned type = 1;  ///< of the field's value
  unsigned long long milliwatts = 312000, millijoules = 5000000;
  unsigned limit_mw = 700000;
  // Records.
  int users = 0;  ///< nvmlInit_v2 less nvmlShutdown
  unsigned field = 0, scope = 99;
  std::string gpu;  ///< last handle taken: "0", or a UUID
};

extern "C" FakeNvml* fake_nvml();
