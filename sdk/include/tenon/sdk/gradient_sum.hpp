// The gradient of a parameter of which several ranks of a mesh hold the same elements, while each rank
// processes other samples or points: the sum of their terms, on all of them.
#pragma once

#include <tenon/layer.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/sdk/linear_map.hpp>

#include <memory>

TENON_ABI_BEGIN

class GradientSum {
 public:
  /// For a single rank: sums nothing.
  GradientSum() = default;
  /// Collective. `value` is the tensor over whose elements each rank computes its terms: ranks along axes
  /// that shard it, but not the parameter, have different terms. Sums nothing if the context is not training.
  GradientSum(InferContext& context, const ParameterSpec& parameter, const Layout& value);

  /// Returns whether this rank adds its terms to the content of the sink; otherwise they replace it. The
  /// previous content enters the sum once.
  bool adds(const GradientSink& sink) const noexcept { return first_ && sink.accumulate; }
  /// Writes zeros unless adds(): for a rank without terms, and before terms that are added one by one.
  void clear(Elementwise& elementwise, const GradientSink& sink) const;
  /// Collective. Called after this rank's terms; a rank without terms calls clear() first.
  void close(const GradientSink& sink);

 private:
  bool first_ = true;  ///< of the ranks that share the gradient, the one that keeps the previous content
  std::unique_ptr<LinearMap> sum_;
};

TENON_ABI_END
