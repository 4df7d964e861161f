// The plugin `tenon.sync_basic`. Its components are in a header, since tests include them.
#include "ddp.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sync_basic",
                               .version = "0.1.0",
                               .summary = "no synchronisation, and distributed data parallel"},
             tenon::sync_basic::None, tenon::sync_basic::Ddp)
