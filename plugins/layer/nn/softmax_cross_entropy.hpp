// Layer `softmax_cross_entropy`: the loss of plain logits [..., classes] against class numbers [...]. For
// language models use `head_cross_entropy`, which never holds the logits of a whole batch. Rows may be
// sharded over a model grid, classes not.
#pragma once

#include "loss_sum.hpp"

#include <tenon/ops/norm.hpp>

namespace tenon::nn {

class SoftmaxCrossEntropy final : public Layer, public LossLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      kLabelSmoothing,
      option::text("metric", "\"loss\"").doc_text("name of the metric; the trained objective is called loss"),
  };
  static constexpr ComponentInfo kInfo{.id = "softmax_cross_entropy",
                                       .summary = "cross-entropy of logits against class numbers, in nats",
                                       .options = kOptions,
                                       .capabilities = kAnywhere};

  explicit SoftmaxCrossEntropy(const Options& options)
      : smoothing_(options.real("label_smoothing")), metric_(options.text("metric")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return interface_id == LossLayer::kId ? static_cast<LossLayer*>(this) : nullptr;
  }
  void set_seed(double seed) override { seed_ = seed; }
  std::string_view metric() const override { return metric_; }

 private:
  double smoothing_;
  std::string metric_;
  double seed_ = 1;
  Device* device_ = nullptr;
  NeuralOps* nn_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  LossSum sum_;
  SavedRef lse_;
  WorkspaceRef losses_, spare_;
};

}  // namespace tenon::nn
