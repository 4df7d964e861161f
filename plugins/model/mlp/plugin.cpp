// The plugin `tenon.mlp`.
#include "mlp.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.mlp", .version = "0.1.0", .summary = "multilayer perceptron"},
             tenon::mlp::Mlp)
