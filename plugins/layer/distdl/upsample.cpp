// Layer `upsample`: the exchange, then one dimension after another from the last, where lines are short, to
// the first; backward goes the same way in reverse. bf16 is widened in between.
#include "upsample.hpp"

namespace tenon::distdl {
namespace {

Interpolation kind_of(std::string_view mode) {
  if (mode == "nearest") return Interpolation::kNearest;
  return mode == "linear" ? Interpolation::kLinear : Interpolation::kLinearAligned;
}

TensorView flat(TensorView view) {
  return view.reshaped({view.elements()});
}

}  // namespace

void Upsample::infer(InferContext& context) {
  const ValueSpec x = expect_one_activation(context);
  expect_planes(context, x.layout);
  const Shape& inputs = x.layout.shape;
  const Interpolation kind = kind_of(options_.text("mode"));
  std::vector<Halo::Reach> reaches;
  for (int dim = 2; dim < inputs.rank(); ++dim) {
    const std::int64_t scale = number_for(context, options_, "scale", dim - 2, inputs.rank() - 2),
                       outputs = inputs[dim] * scale;
    reaches.push_back({scale == 1 ? nullptr : interpolation_map(kind, inputs[dim], outputs), outputs});
  }
  halo_.infer(context, x, reaches);
  for (int dim = 2; dim < inputs.rank(); ++dim) {
    const auto d = static_cast<std::size_t>(dim) - 2;
    taps_.push_back(
        taps_of(kind, inputs[dim], reaches[d].outputs, halo_.made(dim), halo_.read(dim - 2).need));
  }
  dtype_ = x.dtype, arithmetic_ = dtype_ == DType::kF64 ? DType::kF64 : DType::kF32;
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  const auto bytes = [](DType dtype, const Shape& shape) {
    return static_cast<std::size_t>(dtype_bytes(dtype, shape.elements()));
  };
  window_ = context.workspace(bytes(dtype_, halo_.window_shape()));
  for (int d = 0; d <= spatial(); ++d) {
    const bool needed = dtype_ != arithmetic_ || (d > 0 && d < spatial());
    stages_.push_back(needed ? context.workspace(bytes(arithmetic_, stage_shape(d))) : WorkspaceRef{});
  }
  context.output(halo_.output(context, inputs[1]));
}

Shape Upsample::stage_shape(int d) const {
  Shape shape = halo_.window_shape();
  for (int later = d; later < spatial(); ++later)
    shape[later + 2] = taps_[static_cast<std::size_t>(later)].outputs();
  return shape;
}

TensorView Upsample::stage(RunContext& context, int d, TensorView tensor) const {
  if (stages_[static_cast<std::size_t>(d)].index < 0) return tensor;
  return distdl::tensor(context.workspace(stages_[static_cast<std::size_t>(d)]), arithmetic_, stage_shape(d));
}

TensorView Upsample::window(RunContext& context) const {
  return tensor(context.workspace(window_), dtype_, halo_.window_shape());
}

void Upsample::forward(ForwardContext& context) {
  const TensorView read = window(context), y = context.output(0);
  halo_.fetch(context.input(0), read);
  if (halo_.empty()) return;
  TensorView from = stage(context, spatial(), read);
  if (dtype_ != arithmetic_) elementwise_->convert(flat(read), flat(from));
  for (int d = spatial() - 1; d >= 0; --d) {
    const TensorView to = stage(context, d, y);
    resample(taps_[static_cast<std::size_t>(d)], from_here_.read(*device_, from), to_here_.room(to),
             inner(d));
    to_here_.write(*device_, to);
    from = to;
  }
  if (dtype_ != arithmetic_) elementwise_->convert(flat(from), flat(y));
}

void Upsample::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.shape.rank() == 0) return;
  const TensorView given = window(context), dy = context.output_gradient(0);
  if (!halo_.empty()) {
    TensorView from = stage(context, 0, dy);
    if (dtype_ != arithmetic_) elementwise_->convert(flat(dy), flat(from));
    for (int d = 0; d < spatial(); ++d) {
      const TensorView to = stage(context, d + 1, given);
      resample_adjoint(taps_[static_cast<std::size_t>(d)], from_here_.read(*device_, from), to_here_.room(to),
                       inner(d));
      to_here_.write(*device_, to);
      from = to;
    }
    if (dtype_ != arithmetic_) elementwise_->convert(flat(from), flat(given));
  }
  halo_.give_back(given, dx);
}

std::int64_t Upsample::inner(int d) const {
  std::int64_t elements = 1;
  for (int later = d + 1; later < spatial(); ++later)
    elements *= taps_[static_cast<std::size_t>(later)].outputs();
  return elements;
}

}  // namespace tenon::distdl
