// The plugin `tenon.sync_local`.
#include "bmuf.hpp"
#include "easgd.hpp"
#include "local_sgd.hpp"
#include "palsgd.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sync_local",
                               .version = "0.1.0",
                               .summary = "replicas that train alone and meet every few slots"},
             tenon::sync_local::LocalSgd, tenon::sync_local::PostLocalSgd, tenon::sync_local::Diloco,
             tenon::sync_local::Palsgd, tenon::sync_local::Bmuf, tenon::sync_local::Easgd)
