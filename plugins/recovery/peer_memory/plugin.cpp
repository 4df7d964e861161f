// The plugin `tenon.recovery_peer_memory`.
#include "peer_memory.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recovery_peer_memory",
                               .version = "0.1.0",
                               .summary = "copies of each rank in the memory of its neighbours"},
             tenon::recovery_peer_memory::PeerMemory)
