// The plugin `tenon.recovery_checkfreq`. Its component is a header, since tests include it.
#include "checkfreq.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recovery_checkfreq",
                               .version = "0.1.0",
                               .summary = "checkpoints as often as their measured cost allows"},
             tenon::recovery_checkfreq::CheckFreq)
