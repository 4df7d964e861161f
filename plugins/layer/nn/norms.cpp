// Normalisations by the operators of the device, and by totals of shards.
#include "norms.hpp"

#include "common.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tenon::nn {
namespace {

// Sums of shards become totals by the redistribution of a partial sum, which adds in the order of the mesh.

bool counts_sets(const NormSets& sets, int dim) {
  return dim >= sets.first && dim < sets.end;
}

/// `count` numbers per set; every rank with elements of a set has a term of them.
Layout terms_of(const Layout& x, const NormSets& sets, std::int64_t count) {
  const auto counted = x.shape.extents().subspan(sets.first, sets.end - sets.first);
  std::vector<std::int64_t> extents{count};
  extents.insert(extents.end(), counted.begin(), counted.end());
  Layout terms{Shape(std::span<const std::int64_t>(extents))};
  for (DimSharding sharding : x.sharding) {
    if (counts_sets(sets, sharding.dim)) {
      sharding.dim += 1 - sets.first;
      terms.sharding.push_back(sharding);
    } else {
      terms.partial.insert(terms.partial.end(), sharding.axes.begin(), sharding.axes.end());
    }
  }
  return terms;
}

std::unique_ptr<LinearMap> sum_over_ranks(InferContext& context, const Layout& terms) {
  Layout whole = terms;
  whole.partial.clear();
  return redistribution(context.mesh(),
                        {.from = terms, .to = whole, .dtype = DType::kF64, .device = &context.device()},
                        fmt::format("layer '{}': its sums over parts", context.name()));
}

void add_up(LinearMap& map, const TensorView& sums) {
  const TensorView view = sums.reshaped(map.local_range());
  map.forward(view, view);
}

}  // namespace

bool lie_apart(const Layout& x, const NormSets& sets) {
  return std::any_of(x.sharding.begin(), x.sharding.end(), [&](const DimSharding& sharding) {
    return !counts_sets(sets, sharding.dim) && sharding.offsets.size() > 2;
  });
}

ParameterSpec vector_along(const InferContext& context, std::string_view member, const Layout& x, int dim,
                           Initializer init) {
  ParameterSpec spec = vector_parameter(context, member, x.shape[dim], init);
  if (const DimSharding* sharding = sharding_of(x, dim))
    spec.sharding = {{0, sharding->axes, sharding->offsets}};
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
  return window(context.workspace(sums_), (skipped * x_[1]) * sizeof(double), DType::kF64, {count * x_[1]});
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

namespace {

// Layer `batch_norm`: batch statistics in training, running ones in evaluation. Every rank of a mesh
// that has a channel has its totals, so each of them has the whole gradients of gain and bias.

constexpr NormSets kChannels{1, 2};

ParameterSpec running(ParameterSpec spec) {
  spec.role = Role::kBuffer;
  spec.trainable = false;
  return spec;
}

}  // namespace

void BatchNorm::infer(InferContext& context) {
  const Shape x = context.input(0).shape;
  const Layout layout = expect_parts(context, 0);
  if (context.training() && layout.shape.elements() <= layout.shape[1]) {
    refuse(context, "expected more than one value per channel to take a variance of, found x of shape " +
                        layout.shape.text() + "; raise [data] batch");
  }
  const auto vector = [&](std::string_view member, Initializer init) {
    return vector_along(context, member, layout, 1, init);
  };
  gain_ = context.parameter(vector("weight", Initializer::kOne));
  bias_ = context.parameter(vector("bias", Initializer::kZero));
  running_mean_ = context.parameter(running(vector("running_mean", Initializer::kZero)));
  running_variance_ = context.parameter(running(vector("running_var", Initializer::kOne)));
  device_ = &context.device();
  ops_ = &device_->family<NormalisationOps>();
  const DType type = statistics(context.activations());
  mean_ = context.saved({{x[1]}, type});
  rstd_ = context.saved({{x[1]}, type});
  if (context.training() && lie_apart(layout, kChannels)) {
    parts_.emplace(context, layout, kChannels,
                   PartNormSpec{.eps = spec_.eps, .momentum = spec_.momentum, .gain_per_set = true}, true);
    elementwise_ = &device_->family<Elementwise>();
    narrow_ = context.workspace(window_bytes(type, x[1]));
  }
  context.keep_input(0);
  context.output({x, context.activations(), layout});
}

void BatchNorm::forward(ForwardContext& context) {
  if (context.training() && parts_) {
    parts_->forward(context, {.gain = context.parameter(gain_),
                              .bias = context.parameter(bias_),
                              .mean = context.saved(mean_),
                              .rstd = context.saved(rstd_),
                              .running_mean = context.staged(running_mean_),
                              .running_variance = context.staged(running_variance_)});
    return;
  }
  if (context.input(0).empty()) return;
  if (context.training()) {
    ops_->batch_norm(spec_, context.input(0), context.parameter(gain_), context.parameter(bias_),
                     context.staged(running_mean_), context.staged(running_variance_), context.output(0),
                     context.saved(mean_), context.saved(rstd_));
  } else {
    ops_->batch_norm_fixed(spec_, context.input(0), context.parameter(gain_), context.parameter(bias_),
                           context.parameter(running_mean_), context.parameter(running_variance_),
                           context.output(0));
  }
}

void BatchNorm::backward(BackwardContext& context) {
  const GradientSink dgain = context.gradient(gain_), dbias = context.gradient(bias_);
  if (parts_) {
    const TensorView sums = parts_->backward(
        context,
        {.gain = context.parameter(gain_), .mean = context.saved(mean_), .rstd = context.saved(rstd_)});
    const TensorView both = sums.reshaped({2, sums.elements() / 2});
    write(context, both.rows(0, 1), dbias);
    write(context, both.rows(1, 2), dgain);
    return;
  }
  if (context.input(0).empty()) return;  // no channel here
  const GradientSink dx = context.input_gradient(0);
  // Both vectors belong to this node alone, so their sums begin together; either may be frozen.
  const bool accumulate = dgain.view.empty() ? dbias.accumulate : dgain.accumulate;
  ops_->batch_norm_backward(context.input(0), context.parameter(gain_), context.saved(mean_),
                            context.saved(rstd_), context.output_gradient(0), dx.view, dx.accumulate,
                            dgain.view, dbias.view, accumulate);
}

void BatchNorm::write(BackwardContext& context, TensorView totals, const GradientSink& sink) {
  if (sink.view.empty()) return;
  const TensorView narrow = window(context.workspace(narrow_), 0, sink.view.dtype, sink.view.shape);
  elementwise_->convert(flat(totals), narrow);
  pass_on(*device_, *elementwise_, narrow, sink);
}

// Layer `layer_norm`: the device's operator between declared statistics and parameters. Rows that are on
// several ranks are normalised in shards; gradients of gain and bias are sums over the rows of all ranks
// either way.

void LayerNorm::infer(InferContext& context) {
  const Shape x = context.input(0).shape;
  positionwise_ = rows_are_positions(x);
  const Layout layout = expect_parts(context, 0);
  const int last = x.rank() - 1;
  const std::int64_t rows = rows_of(x), columns = columns_of(x);
  const ParameterSpec gain = vector_along(context, "weight", layout, last, Initializer::kOne),
                      bias = vector_along(context, "bias", layout, last, Initializer::kZero);
  gain_ = context.parameter(gain);
  bias_ = context.parameter(bias);
  gain_sum_ = GradientSum(context, gain, layout);
  bias_sum_ = GradientSum(context, bias, layout);
  nn_ = &context.device().family<NeuralOps>();
  elementwise_ = &context.device().family<Elementwise>();
  mean_ = context.saved({{rows}, statistics(context.activations())});
  rstd_ = context.saved({{rows}, statistics(context.activations())});
  scratch_ = context.workspace(nn_->layer_norm_scratch(rows, columns, context.activations()));
  if (const NormSets sets{0, last}; lie_apart(layout, sets))
    parts_.emplace(context, layout, sets, PartNormSpec{.eps = eps_, .gain_per_set = false}, true);
  context.keep_input(0);
  context.output({x, context.activations(), layout});
}

void LayerNorm::forward(ForwardContext& context) {
  const TensorView gain = context.parameter(gain_), bias = context.parameter(bias_),
                   mean = context.saved(mean_), rstd = context.saved(rstd_);
  if (parts_) {
    parts_->forward(context, {.gain = gain, .bias = bias, .mean = mean, .rstd = rstd});
  } else if (!context.input(0).empty()) {
    nn_->layer_norm(matrix(context.input(0)), gain, bias, eps_, matrix(context.output(0)), mean, rstd);
  }
}

void LayerNorm::backward(BackwardContext& context) {
  const GradientSink dgain = context.gradient(gain_), dbias = context.gradient(bias_),
                     dx = context.input_gradient(0);
  const TensorView gain = context.parameter(gain_), mean = context.saved(mean_), rstd = context.saved(rstd_);
  if (context.input(0).empty()) {
    gain_sum_.clear(*elementwise_, dgain);
    bias_sum_.clear(*elementwise_, dbias);
  } else {
    // Both vectors belong to this node alone, so their sums begin together; either may be frozen.
    const bool accumulate = dgain.view.empty() ? bias_sum_.adds(dbias) : gain_sum_.adds(dgain);
    nn_->layer_norm_backward(matrix(context.input(0)), gain, mean, rstd, matrix(context.output_gradient(0)),
                             parts_ || dx.view.empty() ? TensorView{} : matrix(dx.view), dx.accumulate,
                             dgain.view, dbias.view, accumulate, context.workspace(scratch_));
  }
  if (parts_) parts_->backward(context, {.gain = gain, .mean = mean, .rstd = rstd});
  if (!dgain.view.empty()) gain_sum_.close(dgain);
  if (!dbias.view.empty()) bias_sum_.close(dbias);
}

// Layer `rms_norm`: the device's operator between a declared statistic and a parameter. Rows that are on
// several ranks are normalised in shards; the gradient of the gain is a sum over the rows of all ranks either
// way.

void RmsNorm::infer(InferContext& context) {
  const Shape x = context.input(0).shape;
  positionwise_ = rows_are_positions(x);
  const Layout layout = expect_parts(context, 0);
  const int last = x.rank() - 1;
  if (columns_ > 0 && sharding_of(layout, last) != nullptr)
    refuse(context, "option 'columns' needs whole columns on every rank, and they are sharded: " +
                        layout_text(layout));
  if (columns_ > 0 && x[last] % columns_ != 0)
    refuse(context, fmt::format("expected a width that is a multiple of option 'columns' {}, found {}",
                                columns_, x.text()));
  const ParameterSpec gain = columns_ > 0 ? vector_parameter(context, "weight", columns_, Initializer::kOne)
                                          : vector_along(context, "weight", layout, last, Initializer::kOne);
  gain_ = context.parameter(gain);
  gain_sum_ = GradientSum(context, gain, layout);
  ops_ = &context.device().family<NormalisationOps>();
  elementwise_ = &context.device().family<Elementwise>();
  const std::int64_t normalised = columns_ > 0 ? x.elements() / columns_ : rows_of(x);
  rstd_ = context.saved({{normalised}, statistics(context.activations())});
  if (const NormSets sets{0, last}; lie_apart(layout, sets))
    parts_.emplace(context, layout, sets, PartNormSpec{.eps = eps_, .gain_per_set = false}, false);
  context.keep_input(0);
  context.output({x, context.activations(), layout});
}

TensorView RmsNorm::rows(TensorView view) const {
  return columns_ > 0 ? view.reshaped({view.elements() / columns_, columns_}) : matrix(view);
}

void RmsNorm::forward(ForwardContext& context) {
  const TensorView gain = context.parameter(gain_), rstd = context.saved(rstd_);
  if (parts_) {
    parts_->forward(context, {.gain = gain, .rstd = rstd});
  } else if (!context.input(0).empty()) {
    ops_->rms_norm(rows(context.input(0)), gain, eps_, rows(context.output(0)), rstd);
  }
}

void RmsNorm::backward(BackwardContext& context) {
  const GradientSink dgain = context.gradient(gain_), dx = context.input_gradient(0);
  const TensorView gain = context.parameter(gain_), rstd = context.saved(rstd_);
  if (context.input(0).empty()) {
    gain_sum_.clear(*elementwise_, dgain);
  } else {
    ops_->rms_norm_backward(rows(context.input(0)), gain, rstd, rows(context.output_gradient(0)),
                            parts_ || dx.view.empty() ? TensorView{} : rows(dx.view), dx.accumulate,
                            dgain.view, gain_sum_.adds(dgain));
  }
  if (parts_) parts_->backward(context, {.gain = gain, .rstd = rstd});
  if (!dgain.view.empty()) gain_sum_.close(dgain);
}

}  // namespace tenon::nn
