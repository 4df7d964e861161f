// The plugin `tenon.precision_plain`.
#include "plain.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.precision_plain",
                               .version = "0.1.0",
                               .summary = "float32, float64 and bfloat16 without quantized operands"},
             tenon::plain::Fp32, tenon::plain::Fp64, tenon::plain::Bf16)
