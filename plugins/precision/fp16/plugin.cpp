// The plugin `tenon.precision_fp16`.
#include "fp16.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.precision_fp16",
                               .version = "0.1.0",
                               .summary = "binary16 operands with loss scaling"},
             tenon::fp16::Fp16)
