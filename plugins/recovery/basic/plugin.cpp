// The plugin `tenon.recovery_basic`.
#include "full.hpp"
#include "none.hpp"
#include "replica.hpp"

TENON_PLUGIN(
    tenon::PluginInfo{
        .id = "tenon.recovery_basic",
        .version = "0.1.0",
        .summary = "no checkpoints, complete checkpoints with roll-back, and state from live replicas"},
    tenon::recovery_basic::None, tenon::recovery_basic::Full, tenon::recovery_basic::Replica)
