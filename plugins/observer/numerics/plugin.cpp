// The plugin `tenon.numerics`.
#include "numerics.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.numerics",
                               .version = "0.1.0",
                               .summary = "what number formats do to the operands of products"},
             tenon::numerics::Numerics)
