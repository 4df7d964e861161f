// Layer `spectral_conv`: points to modes, a product per mode, modes to points; backward is the adjoint of
// each in reverse. What is kept between them are x's modes.
#include "spectral_conv.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::fno {

std::vector<std::int64_t> SpectralConv::kept_modes(const InferContext& context, const Shape& x) const {
  const auto given = options_.integers("modes");
  const auto points = points_of(x);
  std::vector<std::int64_t> modes(given.begin(), given.end());
  if (modes.size() == 1) modes.resize(points.size(), modes[0]);
  if (modes.size() != points.size())
    refuse(context, fmt::format("expected modes for {} dimension{} or one number for all, found {} for x {}",
                                points.size(), points.size() == 1 ? "" : "s", modes.size(), x.text()));
  for (std::size_t d = 0; d < points.size(); ++d) {
    const bool last = d + 1 == points.size();
    const std::int64_t most = points[d] / 2 + (last ? 1 : 0);
    if (modes[d] > most)
      refuse(context,
             fmt::format(
                 "dimension {} of x {} has {} points, so at most {} modes ({}) can be kept, found {}; "
                 "lower modes, or take finer data",
                 d + 2, x.text(), points[d], most, last ? "half of them + 1" : "half of them", modes[d]));
  }
  return modes;
}

void SpectralConv::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_field(context, 0);
  const std::vector<Dimension> dimensions = dimensions_of(points_of(x), kept_modes(context, x));
  batch_ = x[0], in_ = x[1];
  out_ = options_.has("features") ? options_.integer("features") : in_;
  complex_ = complex_type(context.activations());

  Fft& fft = context.device().family<Fft>();
  x_ = Spectrum(fft, batch_ * in_, dimensions, FftMap::kForward, FftMap::kForwardAdjoint,
                context.activations());
  y_ = Spectrum(fft, batch_ * out_, dimensions, FftMap::kInverseAdjoint, FftMap::kInverse,
                context.activations());
  std::vector<std::int64_t> extents{in_, out_};
  for (const Dimension& dimension : dimensions) extents.push_back(dimension.modes());
  const std::int64_t modes = product(std::span(extents).subspan(2));
  product_ = context.device().family<ModeProducts>().prepare(
      {.batch = batch_, .in = in_, .out = out_, .modes = modes, .dtype = complex_});

  ParameterSpec weight;
  weight.name = options_.has("weight") ? std::string(options_.text("weight"))
                                       : fmt::format("{}.weight", context.name());
  weight.dtype = context.parameters();
  extents.push_back(2);
  weight.shape = Shape(std::span<const std::int64_t>(extents));
  weight.init = Initializer::kUniformFromZero;
  weight.init_scale =
      options_.has("init_scale") ? options_.real("init_scale") : 1.0 / static_cast<double>(in_ * out_);
  weight_ = context.parameter(weight);

  saved_ = context.saved({x_.modes(), complex_});
  y_modes_ = context.workspace(tensor_bytes(complex_, y_.modes().elements()));
  x_gradient_ = context.workspace(tensor_bytes(complex_, x_.modes().elements()));
  for (int turn = 0; turn < 2; ++turn)
    between_[turn] = context.workspace(std::max(x_.between_bytes(turn), y_.between_bytes(turn)));
  scratch_ = context.workspace(std::max(x_.scratch_bytes(), y_.scratch_bytes()));
  product_scratch_ = context.workspace(product_->scratch_bytes());
  context.output({field(batch_, out_, points_of(x)), context.activations()});
}

Spectrum::Memory SpectralConv::memory(RunContext& context) const {
  return {{context.workspace(between_[0]), context.workspace(between_[1])}, context.workspace(scratch_)};
}

TensorView SpectralConv::x_modes(TensorView bytes) const {
  return in_workspace(bytes, complex_, x_.modes());
}

TensorView SpectralConv::y_modes(RunContext& context) const {
  return in_workspace(context.workspace(y_modes_), complex_, y_.modes());
}

void SpectralConv::forward(ForwardContext& context) {
  const TensorView x = context.saved(saved_), y = y_modes(context);
  x_.to_modes(context.input(0), x, memory(context));
  product_->forward(x, context.parameter(weight_), y, context.workspace(product_scratch_));
  y_.to_points(y, context.output(0), false, memory(context));
}

void SpectralConv::backward(BackwardContext& context) {
  const GradientSink dw = context.gradient(weight_), dx = context.input_gradient(0);
  if (dw.view.empty() && dx.view.empty()) return;
  const TensorView dy = y_modes(context), scratch = context.workspace(product_scratch_);
  y_.to_modes(context.output_gradient(0), dy, memory(context));
  if (!dw.view.empty()) product_->backward_weight(context.saved(saved_), dy, dw.view, dw.accumulate, scratch);
  if (dx.view.empty()) return;
  const TensorView dx_modes = x_modes(context.workspace(x_gradient_));
  product_->backward_input(context.parameter(weight_), dy, dx_modes, scratch);
  x_.to_points(dx_modes, dx.view, dx.accumulate, memory(context));
}

}  // namespace tenon::fno
