// The plugin `tenon.distdl`: layers of models that are larger than one memory.
#include "conv_transpose.hpp"
#include "pool.hpp"
#include "repartition.hpp"
#include "upsample.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.distdl", .version = "0.1.0", .summary = "layers over a mesh"},
             tenon::distdl::Repartition, tenon::distdl::Conv, tenon::distdl::ConvTranspose,
             tenon::distdl::MaxPool, tenon::distdl::AveragePool, tenon::distdl::Upsample)
