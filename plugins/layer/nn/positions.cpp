// Layer `positions`: the used rows act as one long bias per sample, so their gradient is a sum over samples.
#include "positions.hpp"

#include <fmt/format.h>

namespace tenon::nn {
namespace {

/// [batch, time, width] as [batch, time * width]: the rows that are used then act like a bias.
TensorView samples(TensorView view) {
  return view.reshaped({view.shape[0], view.elements() / view.shape[0]});
}

}  // namespace

void Positions::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_activation(context, 0, 3);
  const std::int64_t positions = options_.integer("context");
  if (x.rank() != 3 || x[1] > positions) {
    refuse(context,
           fmt::format("expected [batch, time, width] with time at most {} (option 'context'), found {}",
                       positions, x.text()));
  }
  table_ =
      context.parameter(weight_parameter(context, options_, {positions, x[2]}, options_.real("init_scale")));
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  reduce_ = &device_->family<ReduceOps>();
  scratch_ = context.workspace(reduce_->sum_rows_scratch(x[0], x[1] * x[2], context.activations()));
  context.output({x, context.activations()});
}

void Positions::forward(ForwardContext& context) {
  const TensorView x = context.input(0);
  const TensorView used = flat(context.parameter(table_).rows(0, x.shape[1]));
  elementwise_->add_bias(samples(x), used, samples(context.output(0)));
}

void Positions::backward(BackwardContext& context) {
  const TensorView dy = context.output_gradient(0);
  const GradientSink table = context.gradient(table_);
  if (!table.view.empty()) {
    const std::int64_t time = dy.shape[1], positions = table.view.shape[0];
    reduce_->sum_rows(samples(dy), flat(table.view.rows(0, time)), table.accumulate,
                      context.workspace(scratch_));
    if (!table.accumulate && time < positions)
      elementwise_->fill(flat(table.view.rows(time, positions)), 0.0);
  }
  pass_on(*device_, *elementwise_, dy, context.input_gradient(0));
}

}  // namespace tenon::nn
