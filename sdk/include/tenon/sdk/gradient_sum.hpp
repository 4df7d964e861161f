// The gradient of a parameter of which several ranks of a model grid hold the same elements, while each of
// them has seen other samples or points: the sum of what they found, on all of them.
#pragma once

#include <tenon/layer.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/sdk/linear_map.hpp>

#include <memory>

TENON_ABI_BEGIN

class GradientSum {
 public:
  /// Of one rank: nothing is summed.
  GradientSum() = default;
  /// Collective. `value`: whose elements each rank's terms come from; ranks along the axes that cut it, but
  /// not the parameter, have terms of their own. Nothing is summed where the context is not training.
  GradientSum(InferContext& context, const ParameterSpec& parameter, const Layout& value);

  /// Whether this rank's terms are added to what lies in the sink; otherwise they replace it. What lay there
  /// counts once in the sum.
  bool adds(const GradientSink& sink) const noexcept { return first_ && sink.accumulate; }
  /// Zeros unless adds(): what a rank without terms leaves, and what terms that come one by one are added to.
  void clear(Elementwise& elementwise, const GradientSink& sink) const;
  /// Collective. After this rank's terms; one without terms calls clear() first.
  void close(const GradientSink& sink);

 private:
  bool first_ = true;  ///< of the ranks that share the gradient, the one that keeps what lay there
  std::unique_ptr<LinearMap> sum_;
};

TENON_ABI_END
