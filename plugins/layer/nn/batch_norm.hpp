// Layer `batch_norm`: normalises each channel of x [batch, channels, ...] over the batch (Ioffe, Szegedy
// 2015), as PyTorch defines it: the biased variance normalises, the unbiased one goes into the running value.
// Running values are buffers, staged until the slot is applied; evaluation normalises by them. Over a model
// grid x may be sharded in any way; statistics are those of all shards, and sharded channels shard their
// vectors.
#pragma once

#include "norm_parts.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/norm.hpp>

#include <optional>

namespace tenon::nn {

class BatchNorm final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("eps", "1e-5").at_least(0).doc_text("added to the variance"),
      option::real("momentum", "0.1")
          .between(0, 1)
          .doc_text("weight of a batch in the running mean and variance"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "batch_norm",
      .summary = "zero mean and unit variance per channel over the batch, gain and bias",
      .options = kOptions,
      .capabilities = kAnywhere};

  explicit BatchNorm(const Options& options)
      : spec_{.eps = options.real("eps"), .momentum = options.real("momentum")} {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  /// Writes totals of a gradient into its sink.
  void write(BackwardContext& context, TensorView totals, const GradientSink& sink);

  BatchNormSpec spec_;
  Device* device_ = nullptr;
  NormalisationOps* ops_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  std::optional<NormParts> parts_;  ///< where a channel is on several ranks
  ParameterRef gain_, bias_, running_mean_, running_variance_;
  SavedRef mean_, rstd_;
  WorkspaceRef narrow_;
};

}  // namespace tenon::nn
