// The plugin `tenon.vision`: models that classify images.
#include "lenet5.hpp"
#include "resnet.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.vision",
                               .version = "0.1.0",
                               .summary = "convolutional networks that sort images into classes"},
             tenon::vision::LeNet5, tenon::vision::ResNet)
