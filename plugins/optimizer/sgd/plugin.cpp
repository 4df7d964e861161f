// The plugin `tenon.sgd`.
#include "sgd.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sgd", .version = "0.1.0", .summary = "SGD optimizer"},
             tenon::sgd::Sgd)
