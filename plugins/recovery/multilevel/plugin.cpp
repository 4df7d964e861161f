// The plugin `tenon.recovery_multilevel`. Alone, so that tests link the policy without an entry point.
#include "multilevel.hpp"

TENON_PLUGIN(
    tenon::PluginInfo{.id = "tenon.recovery_multilevel",
                      .version = "0.1.0",
                      .summary = "checkpoints on several levels: memory of neighbours, local folder, "
                                 "shared folder"},
    tenon::recovery_multilevel::MultiLevel)
