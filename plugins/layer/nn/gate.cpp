// Layer `gate`: backward computes the map again instead of keeping it.
#include "gate.hpp"

namespace tenon::nn {

void Gate::infer(InferContext& context) {
  const Layout a = expect_parts(context, 0), b = expect_parts(context, 1);
  expect_alike(context, a, b);
  nn_ = &context.device().family<NeuralOps>();
  multiply_ = &context.device().family<MultiplyOps>();
  if (map_ != Epilogue::kNone && context.training())
    mapped_ = context.workspace(window_bytes(context.activations(), context.input(0).shape.elements()));
  context.keep_input(0);
  context.keep_input(1);
  context.output(placed(context, a));
}

void Gate::forward(ForwardContext& context) {
  const TensorView a = flat(context.input(0)), b = flat(context.input(1)), y = flat(context.output(0));
  if (y.empty()) return;
  if (map_ == Epilogue::kNone) return multiply_->multiply(a, b, y, false);
  nn_->activation(map_, b, y);
  multiply_->multiply(a, y, y, false);
}

void Gate::backward(BackwardContext& context) {
  const TensorView a = flat(context.input(0)), b = flat(context.input(1)),
                   dy = flat(context.output_gradient(0));
  if (dy.empty()) return;
  const bool plain = map_ == Epilogue::kNone;
  const TensorView spare = plain ? TensorView() : window(context.workspace(mapped_), 0, dy.dtype, dy.shape);
  // In sequence: where both inputs are the same value, the second sink accumulates once the first is written.
  if (const GradientSink da = context.input_gradient(0); !da.view.empty()) {
    if (!plain) nn_->activation(map_, b, spare);
    multiply_->multiply(dy, plain ? b : spare, flat(da.view), da.accumulate);
  }
  if (const GradientSink db = context.input_gradient(1); !db.view.empty()) {
    if (plain) return multiply_->multiply(dy, a, flat(db.view), db.accumulate);
    multiply_->multiply(dy, a, spare, false);
    nn_->activation_backward(map_, b, spare, flat(db.view), db.accumulate);
  }
}

}  // namespace tenon::nn
