// Layer `layer_norm`: normalises the last dimension and applies a learned gain and bias (Ba, Kiros, Hinton
// 2016). Over a model grid rows may be sharded, and columns too, which then shard gain and bias.
#pragma once

#include "norm_parts.hpp"
#include "parts.hpp"

#include <optional>

namespace tenon::nn {

class LayerNorm final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("eps", "1e-5").at_least(0).doc_text("added to the variance"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "layer_norm",
      .summary = "zero mean and unit variance over the last dimension, gain and bias",
      .options = kOptions,
      .capabilities = kAnywhere};

  explicit LayerNorm(const Options& options) : eps_(options.real("eps")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  double eps_;
  NeuralOps* nn_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  std::optional<NormParts> parts_;  ///< where a row is on several ranks
  ParameterRef gain_, bias_;
  GradientSum gain_sum_, bias_sum_;
  SavedRef mean_, rstd_;
  WorkspaceRef scratch_;
};

}  // namespace tenon::nn
