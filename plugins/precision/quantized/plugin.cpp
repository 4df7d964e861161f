// The plugin `tenon.precision_quantized`.
#include "fp8.hpp"
#include "mx.hpp"
#include "nvfp4.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.precision_quantized",
                               .version = "0.1.0",
                               .summary = "products of NVFP4, MXFP4, MXFP8 and FP8 operands"},
             tenon::quantized::Nvfp4, tenon::quantized::Mxfp4, tenon::quantized::Mxfp8, tenon::quantized::Fp8)
