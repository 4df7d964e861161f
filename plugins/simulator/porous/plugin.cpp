// The plugin `tenon.porous`.
#include "buckley_leverett.hpp"

#include <tenon/plugin.hpp>

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.porous",
                               .version = "0.1.0",
                               .summary = "flow in porous media: Darcy, Buckley-Leverett, two phases"},
             tenon::porous::BuckleyLeverett)
