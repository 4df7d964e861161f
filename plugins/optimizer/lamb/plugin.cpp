// The plugin `tenon.lamb`.
#include "lamb.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.lamb", .version = "0.1.0", .summary = "LAMB optimizer"},
             tenon::lamb::Lamb)
