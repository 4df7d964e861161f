// Model `resnet`: writes the graph, block by block. Convolutions have no bias, as a batch norm follows each.
#include "resnet.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <cmath>

namespace tenon::vision {
namespace {

class Blocks {
 public:
  Blocks(const Options& options) : options_(options), chain_(std::string(options.text("image"))) {}

  void convolve(const std::string& name, std::int64_t features, std::int64_t kernel, std::int64_t stride) {
    // He et al. 2015, by the elements that one input element reaches, as torchvision has it.
    const double fan_out = static_cast<double>(features * kernel * kernel);
    chain_.add(name, "conv2d",
               {{"features", features},
                {"kernel", std::vector<std::int64_t>{kernel}},
                {"stride", std::vector<std::int64_t>{stride}},
                {"padding", std::vector<std::int64_t>{kernel / 2}},
                {"bias", false},
                {"init_scale", std::sqrt(2.0 / fan_out)}});
  }
  void normalise(const std::string& name) {
    chain_.add(name, "batch_norm", {{"momentum", options_.real("momentum")}});
  }
  void rectify(const std::string& name) { chain_.add(name, "relu", {}); }

  /// Two convolutions beside a shortcut, which is a convolution of one element where the shape changes.
  void block(const std::string& name, std::int64_t features, std::int64_t stride, bool projects) {
    const std::string before = chain_.value();
    convolve(name + ".conv1", features, 3, stride);
    normalise(name + ".bn1");
    rectify(name + ".relu1");
    convolve(name + ".conv2", features, 3, 1);
    normalise(name + ".bn2");
    const std::string branch = chain_.value();
    chain_.go_back(before);
    if (projects) {
      convolve(name + ".downsample.0", features, 1, stride);
      normalise(name + ".downsample.1");
    }
    chain_.add(name + ".sum", "residual", {branch, chain_.value()}, {});
    rectify(name + ".relu2");
  }

  Chain& chain() { return chain_; }

 private:
  const Options& options_;
  Chain chain_;
};

}  // namespace

ResNet::ResNet(const Options& options) : options_(options) {
  const std::int64_t depth = options.integer("depth");
  if (depth != 18 && depth != 34)
    fail_config(fmt::format("model resnet: depth is 18 or 34, found {}", depth));
}

GraphSpec ResNet::build(const DataInfo& data) {
  image_shape(options_, data, "resnet");
  const std::int64_t classes = class_count(options_, data, "resnet"), width = options_.integer("width");
  constexpr int kBlocks18[] = {2, 2, 2, 2}, kBlocks34[] = {3, 4, 6, 3};
  Blocks blocks(options_);
  blocks.convolve("conv1", width, 3, 1);
  blocks.normalise("bn1");
  blocks.rectify("relu");
  for (int stage = 0; stage < 4; ++stage) {
    const int count = options_.integer("depth") == 18 ? kBlocks18[stage] : kBlocks34[stage];
    for (int i = 0; i < count; ++i) {
      const bool first = i == 0 && stage > 0;
      blocks.block(fmt::format("layer{}.{}", stage + 1, i), width << stage, first ? 2 : 1, first);
    }
  }
  Chain& chain = blocks.chain();
  chain.add("avgpool", "average_pool2d", {{"global", true}});
  chain.add("flat", "flatten", {});
  chain.add("fc", "linear", {{"features", classes}, {"module", std::string("head")}});
  const std::string label(options_.text("label"));
  chain.add("accuracy", "accuracy", {"fc", label}, {});
  chain.add("loss", "softmax_cross_entropy", {"fc", label},
            {{"label_smoothing", options_.real("label_smoothing")}});
  return chain.finish();
}

}  // namespace tenon::vision
