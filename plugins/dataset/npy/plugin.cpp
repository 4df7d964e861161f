// The plugin `tenon.npy`.
#include "npy.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.npy", .version = "0.1.0", .summary = "NumPy arrays as data"},
             tenon::npy::Npy)
