// Model `resnet`: residual networks of basic blocks (He et al. 2016) in their form for small images: a 3 x 3
// stem without pool, four stages of widths w, 2w, 4w, 8w, a global average and a linear head. Names are
// torchvision's. Depth 18 at width 64 has 11,173,962 parameters for three channels and ten classes.
#pragma once

#include "images.hpp"

namespace tenon::vision {

class ResNet final : public Model {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("depth", "18").doc_text("18 or 34: two blocks per stage, or 3, 4, 6 and 3"),
      option::integer("width", "64").between(1, 1 << 27).doc_text("channels of the first stage"),
      option::real("momentum", "0.1").between(0, 1).doc_text("of the running statistics of batch norms"),
      kClasses,
      kLabelSmoothing,
      kImage,
      kLabel,
  };
  static constexpr ComponentInfo kInfo{.id = "resnet",
                                       .summary = "residual network of basic blocks for small images",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit ResNet(const Options& options);
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the model
};

}  // namespace tenon::vision
