// The plugin `tenon.schedule_basic`.
#include "constant.hpp"
#include "cosine.hpp"
#include "wsd.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.schedule_basic",
                               .version = "0.1.0",
                               .summary = "constant, cosine and warm-up-stable-decay learning rates"},
             tenon::schedule::Constant, tenon::schedule::Cosine, tenon::schedule::Wsd)
