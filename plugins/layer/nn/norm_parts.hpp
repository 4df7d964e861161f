// Normalisation over elements on several ranks of a model grid. The ranks add up sums of values, then of
// squared distances from the mean of all of them: shards may be uneven and empty, so means of means would be
// wrong, and a mean that is far from zero costs no digits. All ranks get the same bits.
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
/// Whether elements of one set are on several ranks.
bool lie_apart(const Layout& x, const NormSets& sets);

/// A vector along dimension `dim` of x, as vector_parameter, sharded like that dimension.
ParameterSpec vector_along(const InferContext& context, std::string_view member, const Layout& x, int dim,
                           Initializer init);

/// Vectors of a normalisation; empty ones as PartNormOps has them.
struct NormVectors {
  TensorView gain = {}, bias = {}, mean = {}, rstd = {}, running_mean = {}, running_variance = {};
};

/// Normalises input 0 into output 0. forward and backward are collective.
class NormParts {
 public:
  /// Collective. Fills in the count of `spec`; without `centred` there are no means.
  NormParts(InferContext& context, const Layout& x, const NormSets& sets, const PartNormSpec& spec,
            bool centred);

  /// Writes mean, rstd and running values.
  void forward(ForwardContext& context, const NormVectors& vectors);
  /// Writes the gradient of x. Returns the totals of PartNormOps::backward_sums, which are valid during this
  /// call of the layer.
  TensorView backward(BackwardContext& context, const NormVectors& vectors);

 private:
  TensorView sets_of(TensorView view) const { return view.reshaped(x_); }
  /// `count` vectors of sums after the first `skipped` ones.
  TensorView sums(RunContext& context, std::int64_t skipped, std::int64_t count) const;

  PartNormSpec spec_;
  bool centred_;
  Shape x_;  ///< [outer, sets, inner] of this rank
  PartNormOps* ops_ = nullptr;
  std::unique_ptr<LinearMap> total_, totals_;  ///< of one vector of sums, and of two
  WorkspaceRef sums_;
};

}  // namespace tenon::nn
