// Sums of shards become totals by the redistribution of a partial sum, which adds in the order of the grid.
#include "norm_parts.hpp"

#include "parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tenon::nn {
namespace {

bool counts_sets(const NormSets& sets, int dim) {
  return dim >= sets.first && dim < sets.end;
}

/// `count` numbers per set; every rank with elements of a set has a term of them.
Layout terms_of(const Layout& x, const NormSets& sets, std::int64_t count) {
  const auto counted = x.shape.extents().subspan(static_cast<std::size_t>(sets.first),
                                                 static_cast<std::size_t>(sets.end - sets.first));
  std::vector<std::int64_t> extents{count};
  extents.insert(extents.end(), counted.begin(), counted.end());
  Layout terms{Shape(std::span<const std::int64_t>(extents))};
  for (DimSharding cut : x.sharding) {
    if (counts_sets(sets, cut.dim)) {
      cut.dim += 1 - sets.first;
      terms.sharding.push_back(cut);
    } else {
      terms.partial.insert(terms.partial.end(), cut.axes.begin(), cut.axes.end());
    }
  }
  return terms;
}

std::unique_ptr<LinearMap> sum_over_ranks(InferContext& context, const Layout& terms) {
  Layout whole = terms;
  whole.partial.clear();
  return redistribution(context.grid(),
                        {.from = terms, .to = whole, .dtype = DType::kF64, .device = &context.device()},
                        fmt::format("layer '{}': its sums over parts", context.name()));
}

void add_up(LinearMap& map, const TensorView& sums) {
  const TensorView view = sums.reshaped(map.local_range());
  map.forward(view, view);
}

}  // namespace

bool lie_apart(const Layout& x, const NormSets& sets) {
  return std::any_of(x.sharding.begin(), x.sharding.end(), [&](const DimSharding& cut) {
    return !counts_sets(sets, cut.dim) && cut.offsets.size() > 2;
  });
}

ParameterSpec vector_along(const InferContext& context, std::string_view member, const Layout& x, int dim,
                           Initializer init) {
  ParameterSpec spec = vector_parameter(context, member, x.shape[dim], init);
  if (const DimSharding* cut = cut_of(x, dim)) spec.sharding = {{0, cut->axes, cut->offsets}};
  return spec;
}

NormParts::NormParts(InferContext& context, const Layout& x, const NormSets& sets, const PartNormSpec& spec,
                     bool centred)
    : spec_(spec), centred_(centred), x_{1, 1, 1}, ops_(&context.device().family<PartNormOps>()) {
  const Shape here = context.input(0).shape;
  spec_.count = 1;
  for (int dim = 0; dim < here.rank(); ++dim) {
    if (!counts_sets(sets, dim)) spec_.count *= static_cast<double>(x.shape[dim]);
    x_[dim < sets.first ? 0 : dim < sets.end ? 1 : 2] *= here[dim];
  }
  total_ = sum_over_ranks(context, terms_of(x, sets, 1));
  if (context.training()) totals_ = sum_over_ranks(context, terms_of(x, sets, 2));
  sums_ = context.workspace(window_bytes(DType::kF64, 2 * x_[1]));
}

TensorView NormParts::sums(RunContext& context, std::int64_t skipped, std::int64_t count) const {
  return window(context.workspace(sums_), static_cast<std::size_t>(skipped * x_[1]) * sizeof(double),
                DType::kF64, {count * x_[1]});
}

void NormParts::forward(ForwardContext& context, const NormVectors& vectors) {
  const TensorView x = sets_of(context.input(0)), squares = sums(context, 0, 1);
  TensorView values;
  if (centred_) {
    values = sums(context, 1, 1);
    ops_->sums(x, values);
    add_up(*total_, values);
  }
  ops_->squares(spec_, x, values, squares);
  add_up(*total_, squares);
  ops_->statistics(spec_, values, squares, vectors.mean, vectors.rstd, vectors.running_mean,
                   vectors.running_variance);
  ops_->normalise(spec_, x, vectors.gain, vectors.bias, vectors.mean, vectors.rstd,
                  sets_of(context.output(0)));
}

TensorView NormParts::backward(BackwardContext& context, const NormVectors& vectors) {
  const TensorView x = sets_of(context.input(0)), dy = sets_of(context.output_gradient(0)),
                   both = sums(context, 0, 2);
  ops_->backward_sums(spec_, x, vectors.gain, vectors.mean, vectors.rstd, dy, both);
  add_up(*totals_, both);
  const GradientSink dx = context.input_gradient(0);
  if (!dx.view.empty()) {
    ops_->backward(spec_, x, vectors.gain, vectors.mean, vectors.rstd, dy, both, sets_of(dx.view),
                   dx.accumulate);
  }
  return both;
}

}  // namespace tenon::nn
