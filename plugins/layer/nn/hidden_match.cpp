// Layer `hidden_match`. Forward leaves two numbers per row, of which backward makes the gradient of each
// element.
#include "hidden_match.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon::nn {

void HiddenMatch::infer(InferContext& context) {
  const Layout student = expect_parts(context, 0), teacher = expect_parts(context, 1);
  Layout wanted = student;
  wanted.shape = with_columns(student.shape, columns_of(teacher.shape));
  if (!(wanted == teacher)) {
    refuse(context, fmt::format("the teacher's rows must be those of the student, found {}, and of the "
                                "student {}",
                                layout_text(teacher), layout_text(student)));
  }
  const int last = student.shape.rank() - 1;
  if (const DimSharding* columns = sharding_of(student, last); columns != nullptr) {
    refuse(context, fmt::format("the columns of the states are sharded ({}), but a row must not be; put a "
                                "repartition before the layer",
                                layout_text(student)));
  }
  const Layout counted = context.input(2).layout;
  if (counted.shape.elements() != rows_of(student.shape)) {
    refuse(context, fmt::format("expected one target per row of the student {}, found targets {}",
                                student.shape.text(), counted.shape.text()));
  }
  const std::int64_t width = columns_of(student.shape), other = columns_of(teacher.shape);
  if (!projects_ && width != other) {
    refuse(context, fmt::format("the student's states have {} columns and the teacher's {}; set project = "
                                "true for a trained projection",
                                width, other));
  }
  rows_ = rows_of(context.input(0).shape);
  if (context.input(2).shape.elements() != rows_) {
    refuse(context, fmt::format("the rows of the states and the targets must be sharded alike over the mesh, "
                                "found {}, and {}",
                                layout_text(student), layout_text(counted)));
  }
  type_ = statistics(context.activations());
  distance_ = &context.device().family<StateDistanceOps>();
  elementwise_ = &context.device().family<Elementwise>();
  if (projects_) infer_projection(context, student);
  statistics_ = context.saved({{rows_, kDistanceStatistics}, type_});
  losses_ = context.workspace(window_bytes(type_, rows_));
  sum_.infer(context, counted, rows_);
  if (!context.training()) return;
  if (!projects_) context.keep_input(0);
  context.keep_input(1);
}

void HiddenMatch::infer_projection(InferContext& context, const Layout& counted) {
  const std::int64_t width = columns_of(context.input(0).shape), other = columns_of(context.input(1).shape);
  ParameterSpec weight;
  weight.name = fmt::format("{}.weight", context.name());
  weight.dtype = context.parameters();
  weight.shape = {other, width};
  weight.init_scale =
      options_.has("init_scale") ? options_.real("init_scale") : 1 / std::sqrt(static_cast<double>(width));
  weight_ = context.parameter(weight);
  weight_sum_ = GradientSum(context, weight, counted);
  site_ = context.linear_site({.module = "linear",
                               .weight = weight_,
                               .input = 0,
                               .m = std::max<std::int64_t>(1, rows_),
                               .n = other,
                               .k = width});
  projected_ = context.saved({{rows_, other}, context.activations()});
  gradient_ = context.workspace(window_bytes(context.activations(), rows_ * other));
}

TensorView HiddenMatch::states(RunContext& context) const {
  return projects_ ? context.saved(projected_) : matrix(context.input(0));
}

void HiddenMatch::forward(ForwardContext& context) {
  const TensorView y = states(context), targets = flat(context.input(2)),
                   losses = window(context.workspace(losses_), 0, type_, {rows_});
  if (projects_ && rows_ > 0) context.fprop(site_, matrix(context.input(0)), {}, y, 0);
  distance_->distance(form_, y, matrix(context.input(1)), targets, losses, context.saved(statistics_));
  sum_.write(losses, targets, context.output(0));
}

void HiddenMatch::backward(BackwardContext& context) {
  const TensorView y = states(context), t = matrix(context.input(1)), kept = context.saved(statistics_);
  const GradientSink dx = context.input_gradient(0), dt = context.input_gradient(1);
  if (!dt.view.empty() && !dt.accumulate) elementwise_->fill(flat(dt.view), 0);
  if (!projects_) {
    if (!dx.view.empty()) distance_->distance_backward(y, t, kept, seed(), matrix(dx.view), dx.accumulate);
    return;
  }
  const GradientSink dw = context.gradient(weight_);
  if (rows_ == 0) {
    weight_sum_.clear(*elementwise_, dw);
  } else {
    const TensorView dy = window(context.workspace(gradient_), 0, y.dtype, y.shape);
    distance_->distance_backward(y, t, kept, seed(), dy, false);
    if (!dw.view.empty()) context.wgrad(site_, {}, dy, weight_sum_.adds(dw), 0);
    if (!dx.view.empty()) context.dgrad(site_, dy, matrix(dx.view), dx.accumulate, 0);
  }
  if (!dw.view.empty()) weight_sum_.close(dw);
}

}  // namespace tenon::nn
