// Layer `rms_norm`: divides the last dimension by its root mean square and applies a learned gain (Zhang,
// Sennrich 2019). Over a model grid rows may be sharded, and columns too, which then shard the gain.
#pragma once

#include "norm_parts.hpp"
#include "parts.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/norm.hpp>

#include <optional>

namespace tenon::nn {

class RmsNorm final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("eps", "1e-6").at_least(0).doc_text("added to the mean square"),
  };
  static constexpr ComponentInfo kInfo{.id = "rms_norm",
                                       .summary = "unit root mean square over the last dimension, gain",
                                       .options = kOptions,
                                       .capabilities = kAnywhere};

  explicit RmsNorm(const Options& options) : eps_(options.real("eps")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  double eps_;
  NormalisationOps* ops_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  std::optional<NormParts> parts_;  ///< where a row is on several ranks
  ParameterRef gain_;
  GradientSum gain_sum_;
  SavedRef rstd_;
};

}  // namespace tenon::nn
