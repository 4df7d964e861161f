#include "device.hpp"

#ifdef TENON_CUDA_EMULATED
TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.device_cuda_emulated",
                               .version = "0.1.0",
                               .summary = "device cuda_emulated: what the CUDA device does, on any machine"},
             tenon::cuda::CudaDevice)
#else
TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.device_cuda",
                               .version = "0.1.0",
                               .summary = "device cuda: NVIDIA GPUs"},
             tenon::cuda::CudaDevice)
#endif
