// The plugin example.supercap; the policy is in its header, which the test includes, too.
#include "supercap.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "example.supercap",
                               .version = "0.1.0",
                               .summary = "capacitors in a power supply (simulated)",
                               .vendor = "Tenon contributors",
                               .licence = "Apache-2.0"},
             supercap::Supercap)
