// The plugin `tenon.tensorboard`.
#include "tensorboard.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tensorboard",
                               .version = "0.1.0",
                               .summary = "event files for TensorBoard"},
             tenon::tensorboard::TensorBoard)
