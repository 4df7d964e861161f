// Layer `mse`: the loss sum((x - t)^2) of predictions x against targets t of equal shape; the count is the
// number of elements, so the mean is PyTorch's MSELoss. A target that is not a number does not count: data
// sets use it for padding. Both may be sharded over a model grid in any way, alike.
#pragma once

#include "loss_sum.hpp"

#include <tenon/ops/reduce.hpp>

namespace tenon::nn {

class Mse final : public Layer, public LossLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("metric", "\"loss\"").doc_text("name of the metric; the trained objective is called loss"),
  };
  static constexpr ComponentInfo kInfo{.id = "mse",
                                       .summary = "squared error of predictions against targets, per element",
                                       .options = kOptions,
                                       .capabilities = kAnywhere};

  explicit Mse(const Options& options) : metric_(options.text("metric")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return interface_id == LossLayer::kId ? static_cast<LossLayer*>(this) : nullptr;
  }
  void set_seed(double seed) override { seed_ = seed; }
  std::string_view metric() const override { return metric_; }

 private:
  /// x - t, in the workspace and in the dtype of statistics; 0 for targets that do not count.
  struct Error {
    TensorView values;
    std::int64_t counted = 0;
  };
  Error difference(RunContext& context) const;

  std::string metric_;
  double seed_ = 1;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  LossSum sum_;
  WorkspaceRef left_, right_, narrow_;
};

}  // namespace tenon::nn
