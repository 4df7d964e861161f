// Layer `linear`: three products of one site; the bias gradient is a sum over rows in a fixed order. On a
// mesh each rank multiplies its shard of x by its shard of w. Where the columns of x are sharded,
// products are partial sums over ranks, and the bias is added after the sum, as one rank adds it after its
// own.
#include "linear.hpp"

#include <tenon/ops/reduce.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::nn {
namespace {

/// Shards dimension 0 of `y`, sharded or not, further over `axes`: its shards are split evenly.
Layout scattered(Layout y, const std::vector<int>& axes, const Mesh& mesh) {
  int parts = 1;
  for (const int axis : axes) parts *= mesh.extent(axis);
  DimSharding sharding{0, {}, {0, y.shape[0]}};
  if (const DimSharding* before = sharding_of(y, 0)) sharding = *before;
  sharding.axes.insert(sharding.axes.end(), axes.begin(), axes.end());
  std::vector<std::int64_t> offsets{0};
  for (std::size_t part = 0; part + 1 < sharding.offsets.size(); ++part) {
    const auto even = balanced_offsets(sharding.offsets[part + 1] - sharding.offsets[part], parts);
    for (int i = 1; i <= parts; ++i) offsets.push_back(sharding.offsets[part] + even[i]);
  }
  sharding.offsets = offsets;
  std::erase_if(y.sharding, [](const DimSharding& one) { return one.dim == 0; });
  y.sharding.push_back(sharding);
  return y;
}

}  // namespace

void Linear::infer(InferContext& context) {
  const Layout x = expect_parts(context, 0);
  positionwise_ = rows_are_positions(x.shape);
  const std::vector<int> axes = free_axes(context, options_, x);
  const std::int64_t features = options_.integer("features");
  has_bias_ = options_.boolean("bias");
  const Layout y = with_even_parts(x, x.shape.rank() - 1, features, axes, context.mesh());
  product_ = part_of(y, context.mesh().place()).extents;
  elementwise_ = &context.device().family<Elementwise>();
  declare_parameters(context, x, y, axes);
  declare_sums(context, x, y);
  // A rank without rows declares its product all the same, since precision policies count them.
  site_ = context.linear_site({.module = options_.text("module"),
                               .weight = weight_,
                               .input = 0,
                               .m = std::max<std::int64_t>(1, rows_of(product_)),
                               .n = part_[0],
                               .k = part_[1],
                               .bias = has_bias_ && sum_ == nullptr,
                               .output = sum_ == nullptr ? 0 : -1});
  context.output(placed(context, out_));
}

void Linear::declare_parameters(InferContext& context, const Layout& x, const Layout& y,
                                const std::vector<int>& axes) {
  const std::int64_t columns = columns_of(x.shape), features = columns_of(y.shape);
  const bool normal = options_.has("init_scale");
  ParameterSpec weight =
      weight_parameter(context, options_, {features, columns},
                       normal ? options_.real("init_scale") : 1.0 / std::sqrt(static_cast<double>(columns)));
  if (!normal) weight.init = Initializer::kUniform;
  weight.sharding = with_even_parts({weight.shape}, 0, features, axes, context.mesh()).sharding;
  if (const DimSharding* sharding = sharding_of(x, x.shape.rank() - 1))
    weight.sharding.push_back({1, sharding->axes, sharding->offsets});
  part_ = local_part(weight, context.mesh().place()).extents;
  weight_ = context.parameter(weight);
  weight_sum_ = GradientSum(context, weight, y);
  if (!has_bias_) return;
  const double scale = options_.real("bias_init_scale");
  ParameterSpec bias =
      vector_parameter(context, "bias", features, scale > 0 ? Initializer::kNormal : Initializer::kZero);
  bias.init_scale = scale;
  bias.sharding = with_even_parts({bias.shape}, 0, features, axes, context.mesh()).sharding;
  bias_ = context.parameter(bias);
  bias_sum_ = GradientSum(context, bias, y);
  reduce_ = &context.device().family<ReduceOps>();
  scratch_ = context.workspace(reduce_->sum_rows_scratch(rows_of(product_), part_[0], context.activations()));
}

void Linear::declare_sums(InferContext& context, const Layout& x, const Layout& y) {
  Mesh& mesh = context.mesh();
  // Ranks along `axes` hold the same x and have terms of its gradient, as they would of a parameter's.
  ParameterSpec held;
  held.name = "x";
  held.dtype = context.activations();
  held.shape = x.shape, held.sharding = x.sharding;
  x_sum_ = GradientSum(context, held, y);

  const DimSharding* sharding = sharding_of(x, x.shape.rank() - 1);
  if (options_.boolean("scatter") && sharding == nullptr) {
    refuse(context, fmt::format("option 'scatter' needs x sharded in its last dimension, found {}; put a "
                                "repartition before the layer, or leave the option out",
                                layout_text(x)));
  }
  out_ = y;
  Layout terms = y;
  if (sharding != nullptr) terms.partial = sharding->axes;
  std::erase_if(terms.partial, [&](int axis) { return mesh.extent(axis) == 1; });
  if (terms.partial.empty()) return;
  scatters_ = options_.boolean("scatter");
  if (scatters_) out_ = scattered(y, terms.partial, mesh);
  const std::string what = fmt::format("layer '{}'", context.name());
  const DType dtype = context.activations();
  Device* const device = &context.device();
  sum_ = redistribution(mesh, {.from = terms, .to = out_, .dtype = dtype, .device = device}, what);
  if (!scatters_) return;
  terms_ = context.workspace(dtype_bytes(dtype, product_.elements()));
  if (context.training())
    gather_ = redistribution(mesh, {.from = out_, .to = y, .dtype = dtype, .device = device}, what);
}

TensorView Linear::before_scatter(RunContext& context, TensorView output) const {
  if (!scatters_) return output;
  return {context.workspace(terms_).data, product_, output.dtype, output.space};
}

void Linear::forward(ForwardContext& context) {
  const TensorView y = context.output(0), bias = has_bias_ ? context.parameter(bias_) : TensorView{};
  if (sum_ == nullptr) {
    if (!y.empty()) context.fprop(site_, matrix(context.input(0)), bias, matrix(y), 0);
    return;
  }
  const TensorView terms = before_scatter(context, y);
  if (!terms.empty() && part_[1] > 0) {
    context.fprop(site_, matrix(context.input(0)), {}, matrix(terms), 0);
  } else if (!terms.empty()) {
    elementwise_->fill(flat(terms), 0);
  }
  sum_->forward(terms, y);
  if (has_bias_ && !y.empty()) elementwise_->add_bias(matrix(y), bias, matrix(y));
}

void Linear::backward(BackwardContext& context) {
  const TensorView given = context.output_gradient(0), whole = before_scatter(context, given);
  if (gather_ != nullptr) gather_->forward(given, whole);
  const TensorView dy = matrix(whole);
  if (has_bias_) {
    const GradientSink bias = context.gradient(bias_);
    if (dy.empty()) {
      bias_sum_.clear(*elementwise_, bias);
    } else if (!bias.view.empty()) {
      reduce_->sum_rows(dy, bias.view, bias_sum_.adds(bias), context.workspace(scratch_));
    }
    if (!bias.view.empty()) bias_sum_.close(bias);
  }
  const GradientSink weight = context.gradient(weight_);
  if (dy.empty()) {
    weight_sum_.clear(*elementwise_, weight);
  } else if (!weight.view.empty()) {
    context.wgrad(site_, {}, dy, weight_sum_.adds(weight), 0);
  }
  if (!weight.view.empty()) weight_sum_.close(weight);

  const GradientSink dx = context.input_gradient(0);
  if (dx.view.shape.rank() == 0) return;  // the gradient of an empty shard has a rank
  if (dy.empty()) {
    x_sum_.clear(*elementwise_, dx);
  } else if (!dx.view.empty()) {
    context.dgrad(site_, dy, matrix(dx.view), x_sum_.adds(dx), 0);
  }
  x_sum_.close(dx);
}

}  // namespace tenon::nn
