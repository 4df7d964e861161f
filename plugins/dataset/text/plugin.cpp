// The plugin `tenon.text`.
#include "mixture.hpp"
#include "text.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.text",
                               .version = "0.1.0",
                               .summary = "text and token files as data"},
             tenon::text::Text, tenon::text::Mixture)
