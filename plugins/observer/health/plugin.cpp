// The plugin `tenon.health`.
#include "health.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.health",
                               .version = "0.1.0",
                               .summary = "gradient norms, update ratios and dead units per layer"},
             tenon::health::Health)
