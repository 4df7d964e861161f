// The plugin `tenon.profile`.
#include "profile.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.profile",
                               .version = "0.1.0",
                               .summary = "where the time of a slot goes"},
             tenon::profile::Profile)
