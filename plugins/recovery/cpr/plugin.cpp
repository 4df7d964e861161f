// The plugin `tenon.recovery_cpr`.
#include "cpr.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recovery_cpr",
                               .version = "0.1.0",
                               .summary = "partial recovery of row tables with priority saves"},
             tenon::recovery_cpr::Cpr)
