// The plugin `tenon.progress`.
#include "progress.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.progress",
                               .version = "0.1.0",
                               .summary = "progress line on standard error"},
             tenon::progress::Progress)
