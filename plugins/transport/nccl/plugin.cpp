// The plugin `tenon.transport_nccl`.
#include "nccl_transport.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.transport_nccl",
                               .version = "0.1.0",
                               .summary = "bytes between GPUs of several processes, over NVIDIA's NCCL"},
             tenon::nccl_transport::NcclTransport)
