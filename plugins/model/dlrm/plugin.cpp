// The plugin `tenon.dlrm`: models of click-through data.
#include "dlrm.hpp"
#include "logistic_regression.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.dlrm",
                               .version = "0.1.0",
                               .summary = "models of click-through data"},
             tenon::dlrm::Dlrm, tenon::dlrm::LogisticRegression)
