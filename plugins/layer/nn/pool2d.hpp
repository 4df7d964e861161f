// Layers `max_pool2d` and `average_pool2d`: the greatest element, or the mean, of each window of an image
// [batch, channels, height, width]. The maximum keeps the index of its element, and nothing of x.
#pragma once

#include "window.hpp"

namespace tenon::nn {

class MaxPool2d final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integers("kernel", nullptr)
          .mandatory()
          .between(1, 32767)
          .doc_text("[height, width] of the window, or one number for both"),
      option::integers("stride", nullptr)
          .between(1, 32767)
          .doc_text("distance of neighbouring windows; absent: the kernel, so that they do not overlap"),
      option::integers("padding", "[0]")
          .between(0, 32767)
          .doc_text("on each side, at most half the kernel; never chosen"),
      option::integers("dilation", "[1]")
          .between(1, 32767)
          .doc_text("distance of neighbouring elements of a window"),
  };
  static constexpr ComponentInfo kInfo{.id = "max_pool2d",
                                       .summary = "greatest element of each window of an image",
                                       .options = kOptions,
                                       .capabilities = kAnywhere};

  explicit MaxPool2d(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the layer
  WindowSpec window_;
  WindowOps* ops_ = nullptr;
  SavedRef index_;
};

class AveragePool2d final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::boolean("global", "false")
          .doc_text("one window over the whole image; kernel and stride are not read"),
      option::integers("kernel", "[2]")
          .between(1, 32767)
          .doc_text("[height, width] of the window, or one number for both"),
      option::integers("stride", nullptr)
          .between(1, 32767)
          .doc_text("distance of neighbouring windows; absent: the kernel, so that they do not overlap"),
      option::integers("padding", "[0]")
          .between(0, 32767)
          .doc_text("rows and columns of zeros on each side, at most half "
                    "the kernel"),
      option::boolean("count_padding", "true").doc_text("whether zeros of the padding count as elements"),
  };
  static constexpr ComponentInfo kInfo{.id = "average_pool2d",
                                       .summary = "mean of each window of an image, or of the whole image",
                                       .options = kOptions,
                                       .capabilities = kAnywhere};

  explicit AveragePool2d(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the layer
  WindowSpec window_;
  bool count_padding_ = true;
  WindowOps* ops_ = nullptr;
};

}  // namespace tenon::nn
