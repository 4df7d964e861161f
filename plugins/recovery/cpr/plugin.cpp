// The plugin `tenon.recovery_cpr`, apart from cpr.cpp, which tests compile without a plugin.
#include "cpr.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recovery_cpr",
                               .version = "0.1.0",
                               .summary = "partial recovery of row tables with priority saves"},
             tenon::recovery_cpr::Cpr)
