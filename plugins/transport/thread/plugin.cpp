// The plugin `tenon.transport_thread`.
#include "thread_transport.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.transport_thread",
                               .version = "0.1.0",
                               .summary = "bytes between ranks that are threads of one process"},
             tenon::thread_transport::ThreadTransport)
