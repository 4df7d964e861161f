// Layer `linear`: three products of one site; the bias gradient is a sum over rows in a fixed order.
#include "linear.hpp"

#include <cmath>

namespace tenon::nn {

void Linear::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 2);
  const std::int64_t rows = rows_of(x), columns = columns_of(x), features = options_.integer("features");
  has_bias_ = options_.boolean("bias");

  const bool normal = options_.has("init_scale");
  ParameterSpec weight =
      weight_parameter(context, options_, {features, columns},
                       normal ? options_.real("init_scale") : 1.0 / std::sqrt(static_cast<double>(columns)));
  if (!normal) weight.init = Initializer::kUniform;
  weight_ = context.parameter(weight);
  if (has_bias_) {
    const double scale = options_.real("bias_init_scale");
    ParameterSpec bias =
        vector_parameter(context, "bias", features, scale > 0 ? Initializer::kNormal : Initializer::kZero);
    bias.init_scale = scale;
    bias_ = context.parameter(bias);
    reduce_ = &context.device().family<ReduceOps>();
    scratch_ = context.workspace(reduce_->sum_rows_scratch(rows, features, context.activations()));
  }
  site_ = context.linear_site({.module = options_.text("module"),
                               .weight = weight_,
                               .input = 0,
                               .m = rows,
                               .n = features,
                               .k = columns,
                               .bias = has_bias_,
                               .output = 0});
  context.output({with_columns(x, features), context.activations()});
}

void Linear::forward(ForwardContext& context) {
  const TensorView bias = has_bias_ ? context.parameter(bias_) : TensorView{};
  context.fprop(site_, matrix(context.input(0)), bias, matrix(context.output(0)), 0);
}

void Linear::backward(BackwardContext& context) {
  const TensorView dy = matrix(context.output_gradient(0));
  if (has_bias_) {
    const GradientSink bias = context.gradient(bias_);
    if (!bias.view.empty()) reduce_->sum_rows(dy, bias.view, bias.accumulate, context.workspace(scratch_));
  }
  const GradientSink weight = context.gradient(weight_);
  if (!weight.view.empty()) context.wgrad(site_, {}, dy, weight.accumulate, 0);
  const GradientSink dx = context.input_gradient(0);
  if (!dx.view.empty()) context.dgrad(site_, dy, matrix(dx.view), dx.accumulate, 0);
}

}  // namespace tenon::nn
