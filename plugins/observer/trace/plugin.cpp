// The plugin `tenon.trace`.
#include "trace.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.trace",
                               .version = "0.1.0",
                               .summary = "timelines of all ranks for trace viewers"},
             tenon::trace::Trace)
