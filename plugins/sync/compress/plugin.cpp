// The plugin `tenon.sync_compress`.
#include "powersgd.hpp"
#include "sign.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sync_compress",
                               .version = "0.1.0",
                               .summary = "means of gradients that travel compressed"},
             tenon::sync_compress::Powersgd, tenon::sync_compress::Sign)
