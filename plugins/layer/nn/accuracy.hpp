// Layer `accuracy`: number of targets that are the greatest logit of their row (the first of equals). A
// metric beside the trained loss: it has no gradient.
#pragma once

#include "loss_sum.hpp"

#include <vector>

namespace tenon::nn {

class Accuracy final : public Layer, public LossLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("metric", "\"accuracy\"").doc_text("name of the metric"),
  };
  static constexpr ComponentInfo kInfo{.id = "accuracy",
                                       .summary = "share of targets that have the greatest logit",
                                       .options = kOptions,
                                       .capabilities = kAnywhere};

  explicit Accuracy(const Options& options) : metric_(options.text("metric")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext&) override {}
  void* query(std::string_view interface_id) override {
    return interface_id == LossLayer::kId ? static_cast<LossLayer*>(this) : nullptr;
  }
  void set_seed(double) override {}
  std::string_view metric() const override { return metric_; }

 private:
  std::string metric_;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  LossSum sum_;
  WorkspaceRef wide_;
  std::vector<double> logits_;  // on the host, where rows are compared
  std::vector<std::int32_t> targets_;
};

}  // namespace tenon::nn
