// The plugin `tenon.recovery_basic`.
#include "full.hpp"
#include "none.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recovery_basic",
                               .version = "0.1.0",
                               .summary = "no checkpoints, and complete checkpoints with roll-back"},
             tenon::recovery_basic::None, tenon::recovery_basic::Full)
