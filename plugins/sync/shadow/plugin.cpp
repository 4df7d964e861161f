// The plugin `tenon.sync_shadow`.
#include "easgd.hpp"
#include "means.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sync_shadow",
                               .version = "0.1.0",
                               .summary = "trainers that exchange weights in the background"},
             tenon::sync_shadow::ShadowEasgd, tenon::sync_shadow::ShadowMa, tenon::sync_shadow::ShadowBmuf)
