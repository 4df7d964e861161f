// The plugin `tenon.recovery_checknrun`.
#include "checknrun.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recovery_checknrun",
                               .version = "0.1.0",
                               .summary = "increments with the rows that changed, optionally quantised"},
             tenon::recovery_checknrun::CheckNRun)
