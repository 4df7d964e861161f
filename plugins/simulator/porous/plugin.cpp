// The plugin `tenon.porous`: three components, none of which owns the others.
#include "buckley_leverett.hpp"
#include "darcy.hpp"
#include "two_phase.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.porous",
                               .version = "0.1.0",
                               .summary = "flow in porous media: Darcy, Buckley-Leverett, two phases"},
             tenon::porous::BuckleyLeverett, tenon::porous::Darcy, tenon::porous::TwoPhase)
