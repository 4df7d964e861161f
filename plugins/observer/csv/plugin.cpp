// The plugin `tenon.csv`.
#include "csv.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.csv", .version = "0.1.0", .summary = "metrics as a table"},
             tenon::csv::Csv)
