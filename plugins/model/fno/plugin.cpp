// The plugin `tenon.model_fno`.
#include "fno.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.model_fno",
                               .version = "0.1.0",
                               .summary = "Fourier neural operators"},
             tenon::fno::Fno)
