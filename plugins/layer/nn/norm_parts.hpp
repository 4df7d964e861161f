// Normalisation over elements that lie on several ranks of a model grid. What the ranks add up are sums of
// values, then of squared distances from the mean of all of them: parts may be uneven and empty, which means
// of means do not survive, and a mean that is far from zero costs no digits. The same bits come out on all
// ranks.
#pragma once

#include "common.hpp"

#include <tenon/ops/norm.hpp>
#include <tenon/sdk/linear_map.hpp>

#include <memory>
#include <string_view>

namespace tenon::nn {

/// Dimensions [first, end) of x, whose indices count the sets: the elements of one are normalised together.
struct NormSets {
  int first = 0, end = 0;
};
/// Whether elements of one set lie on several ranks.
bool lie_apart(const Layout& x, const NormSets& sets);

/// A vector along dimension `dim` of x, as vector_parameter, cut where that dimension is.
ParameterSpec vector_along(const InferContext& context, std::string_view member, const Layout& x, int dim,
                           Initializer init);

/// Vectors of a normalisation; empty ones as PartNormOps has them.
struct NormVectors {
  TensorView gain = {}, bias = {}, mean = {}, rstd = {}, running_mean = {}, running_variance = {};
};

/// Of input 0 into output 0. forward and backward are collective.
class NormParts {
 public:
  /// Collective. The count of `spec` is filled in; without `centred` there are no means.
  NormParts(InferContext& context, const Layout& x, const NormSets& sets, const PartNormSpec& spec,
            bool centred);

  /// Writes mean, rstd and running values.
  void forward(ForwardContext& context, const NormVectors& vectors);
  /// Writes the gradient of x. Returns the totals of PartNormOps::backward_sums, which live as long as this
  /// call of the layer.
  TensorView backward(BackwardContext& context, const NormVectors& vectors);

 private:
  TensorView sets_of(TensorView view) const { return view.reshaped(x_); }
  /// `count` vectors of sums behind the first `skipped` ones.
  TensorView sums(RunContext& context, std::int64_t skipped, std::int64_t count) const;

  PartNormSpec spec_;
  bool centred_;
  Shape x_;  ///< [outer, sets, inner] of this rank
  PartNormOps* ops_ = nullptr;
  std::unique_ptr<LinearMap> total_, totals_;  ///< of one vector of sums, and of two
  WorkspaceRef sums_;
};

}  // namespace tenon::nn
