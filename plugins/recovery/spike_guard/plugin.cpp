// The plugin `tenon.recovery_spike_guard`.
#include "spike_guard.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recovery_spike_guard",
                               .version = "0.1.0",
                               .summary = "goes back when gradients explode"},
             tenon::recovery_spike_guard::SpikeGuard)
