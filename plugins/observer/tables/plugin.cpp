// The plugin `tenon.tables`.
#include "tables.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tables",
                               .version = "0.1.0",
                               .summary = "how rows of tables are used"},
             tenon::tables::Tables)
