// The plugin `tenon.rowwise_adagrad`.
#include "rowwise_adagrad.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.rowwise_adagrad",
                               .version = "0.1.0",
                               .summary = "Adagrad with one accumulator per row of a table"},
             tenon::rowwise_adagrad::RowwiseAdagrad)
