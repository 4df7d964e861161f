// The plugin `tenon.navier_stokes`.
#include "navier_stokes.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.navier_stokes",
                               .version = "0.1.0",
                               .summary = "two-dimensional Navier-Stokes equations on the torus"},
             tenon::navier_stokes::NavierStokes)
