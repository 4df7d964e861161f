// The plugin `tenon.device_cpu`.
#include "device.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.device_cpu",
                               .version = "0.1.0",
                               .summary = "memory and operators of x86-64 processors"},
             tenon::cpu::CpuDevice)
