// The plugin `tenon.sync_streaming`.
#include "streaming.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sync_streaming",
                               .version = "0.1.0",
                               .summary = "weights synchronised in fragments, in the background"},
             tenon::sync_streaming::StreamingDiloco)
