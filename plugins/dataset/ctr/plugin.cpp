// The plugin `tenon.ctr`: three components, none of which owns the others.
#include "adult.hpp"
#include "criteo.hpp"
#include "synthetic_ctr.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.ctr",
                               .version = "0.1.0",
                               .summary = "click-through data: numbers, ids of tables, a label"},
             tenon::ctr::Adult, tenon::ctr::Criteo, tenon::ctr::SyntheticCtr)
