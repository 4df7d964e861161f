// The plugin `tenon.recsys`: layers of recommendation models.
#include "ctr.hpp"
#include "embedding_bag.hpp"
#include "interaction.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.recsys",
                               .version = "0.1.0",
                               .summary = "layers of recommendation models"},
             tenon::recsys::DotInteraction, tenon::recsys::CatInteraction, tenon::recsys::SumInteraction,
             tenon::recsys::EmbeddingBag, tenon::recsys::BceWithLogits, tenon::recsys::CtrMetrics)
