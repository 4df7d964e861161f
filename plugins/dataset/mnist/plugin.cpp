// The plugin `tenon.mnist`.
#include "mnist.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.mnist",
                               .version = "0.1.0",
                               .summary = "MNIST and other images in IDX files as data"},
             tenon::mnist::Mnist)
