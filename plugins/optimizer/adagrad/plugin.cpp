// The plugin `tenon.adagrad`.
#include "adagrad.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.adagrad", .version = "0.1.0", .summary = "Adagrad optimizer"},
             tenon::adagrad::Adagrad)
