// Model `lenet5`: two convolutions with pools and three linear layers (LeCun et al. 1998), 61,706 parameters
// for one channel and ten classes. Images of 32 x 32, or of 28 x 28, which are padded to that.
#pragma once

#include "images.hpp"

namespace tenon::vision {

class LeNet5 final : public Model {
 public:
  static constexpr const char* kActivations[] = {"relu", "gelu", "silu", "squared_relu", nullptr};
  /// Choices and the layer of each.
  static constexpr auto kPools =
      option::choice<const char*>({{"max", "max_pool2d"}, {"average", "average_pool2d"}});
  static constexpr OptionSpec kOptions[] = {
      option::text("activation", "\"relu\"").one_of(kActivations).doc_text("after each layer but the last"),
      option::text("pool", "\"max\"").one_of(kPools).doc_text("of 2 x 2 after each convolution"),
      kClasses,
      kLabelSmoothing,
      kImage,
      kLabel,
  };
  static constexpr ComponentInfo kInfo{
      .id = "lenet5",
      .summary = "LeNet-5: a small convolutional network for images of digits",
      .options = kOptions,
      .capabilities = TENON_CAP_DETERMINISTIC};

  explicit LeNet5(const Options& options) : options_(options) {}
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the model
};

}  // namespace tenon::vision
