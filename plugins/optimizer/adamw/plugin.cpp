// The plugin `tenon.adamw`.
#include "adamw.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.adamw", .version = "0.1.0", .summary = "AdamW optimizer"},
             tenon::adamw::AdamW)
