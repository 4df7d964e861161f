// The plugin `tenon.muon`.
#include "muon.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.muon", .version = "0.1.0", .summary = "Muon optimizer"},
             tenon::muon::Muon)
