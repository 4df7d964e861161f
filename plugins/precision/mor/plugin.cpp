// The plugin `tenon.precision_mor`.
#include "mor.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.precision_mor",
                               .version = "0.1.0",
                               .summary = "a number format per operand or block, by measured error"},
             tenon::mor::Mor)
