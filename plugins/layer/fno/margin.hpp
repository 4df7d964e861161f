// Layers `pad_far` and `crop_far`: points of zeros after the last one of each dimension, and their removal. A
// transform treats its points as one period; padding separates the far side from the near one. Padding only
// the far sides keeps the place of the point with index 0.
#pragma once

#include "box.hpp"

namespace tenon::fno {

class Margin : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integers("widths", nullptr)
          .mandatory()
          .between(0, 2147483647)
          .in_unit("points")
          .doc_text("points per dimension after the last, or one number for all"),
  };

  void infer(InferContext& context) final;
  void forward(ForwardContext& context) final;
  void backward(BackwardContext& context) final;
  void* query(std::string_view) final { return nullptr; }

 protected:
  Margin(const Options& options, bool pads) : options_(options), pads_(pads) {}

 private:
  const Options& options_;  // outlives the layer
  bool pads_;
  Shape box_;  ///< of the points that both have
  Elementwise* elementwise_ = nullptr;
  BoxCopier boxes_;
  WorkspaceRef room_;
};

class PadFar final : public Margin {
 public:
  static constexpr ComponentInfo kInfo{.id = "pad_far",
                                       .summary = "zeros after the last point of each dimension",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};
  explicit PadFar(const Options& options) : Margin(options, true) {}
};

class CropFar final : public Margin {
 public:
  static constexpr ComponentInfo kInfo{.id = "crop_far",
                                       .summary = "removes the last points of each dimension",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC};
  explicit CropFar(const Options& options) : Margin(options, false) {}
};

}  // namespace tenon::fno
