// The plugin `tenon.sqlite`.
#include "run_index.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.sqlite",
                               .version = "0.1.0",
                               .summary = "index of runs in one SQLite database"},
             tenon::sqlite::RunIndex)
