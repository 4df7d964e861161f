// The plugin `tenon.gpt_neo`.
#include "gpt_neo.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.gpt_neo",
                               .version = "0.1.0",
                               .summary = "GPT-Neo language model"},
             tenon::gpt_neo::GptNeo)
