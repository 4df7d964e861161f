// Layer `bce_with_logits`: binary cross-entropy of one logit per sample against labels 0 and 1, in nats; the
// sigmoid is part of it, so no probability is ever rounded to 0 or 1.
#pragma once

#include "common.hpp"

namespace tenon::recsys {

class BceWithLogits final : public Layer, public LossLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("metric", "\"loss\"").doc_text("name of the metric; the trained objective is called loss"),
  };
  static constexpr ComponentInfo kInfo{.id = "bce_with_logits",
                                       .summary = "binary cross-entropy of logits against labels, in nats",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC};

  explicit BceWithLogits(const Options& options) : metric_(options.text("metric")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return interface_id == LossLayer::kId ? static_cast<LossLayer*>(this) : nullptr;
  }
  void set_seed(double seed) override { seed_ = seed; }
  std::string_view metric() const override { return metric_; }

 private:
  std::string metric_;
  double seed_ = 1;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  LabelledLogits samples_;
  std::vector<double> gradient_;
  WorkspaceRef wide_, narrow_;
};

}  // namespace tenon::recsys
