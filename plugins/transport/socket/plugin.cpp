// The plugin `tenon.transport_socket`.
#include "socket_transport.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.transport_socket",
                               .version = "0.1.0",
                               .summary = "bytes between ranks that are processes, over TCP"},
             tenon::socket_transport::SocketTransport)
