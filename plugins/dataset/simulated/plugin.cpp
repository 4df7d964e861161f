// The plugin `tenon.simulated`.
#include "simulated.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.simulated",
                               .version = "0.1.0",
                               .summary = "samples that a simulator made"},
             tenon::simulated::Simulated)
