// The interaction layers: shapes, and the device's family for the numbers.
#include "interaction.hpp"

namespace tenon::recsys {

void InteractionLayer::infer(InferContext& context) {
  z0_ = context.input(0).shape;
  z_ = context.input(1).shape;
  if (z0_[0] != z_[0] || (z0_[1] != z_[2] && kind_ != Interaction::kConcatenate)) {
    refuse(context, "expected z0 [batch, width] and z [batch, tables, width] of one width, found " +
                        z0_.text() + " and " + z_.text() +
                        "; the last bottom layer and the tables must agree");
  }
  ops_ = &context.device().family<InteractionOps>();
  if (is_dot()) {
    context.keep_input(0);
    context.keep_input(1);
  }
  context.output({{z0_[0], interaction_columns(kind_, z0_[1], z_[1], z_[2])}, context.activations()});
}

void InteractionLayer::forward(ForwardContext& context) {
  ops_->interact(kind_, context.input(0), context.input(1), context.output(0));
}

void InteractionLayer::backward(BackwardContext& context) {
  const GradientSink first = context.input_gradient(0), rest = context.input_gradient(1);
  if (first.view.empty() && rest.view.empty()) return;
  const TensorView dy = context.output_gradient(0);
  // The other layers need only the shapes.
  const TensorView z0 = is_dot() ? context.input(0) : TensorView{nullptr, z0_, dy.dtype, dy.space},
                   z = is_dot() ? context.input(1) : TensorView{nullptr, z_, dy.dtype, dy.space};
  ops_->interact_backward(kind_, z0, z, dy, first.view, first.accumulate, rest.view, rest.accumulate);
}

}  // namespace tenon::recsys
