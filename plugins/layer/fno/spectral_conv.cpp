// Layer `spectral_conv`: points to modes, a product per mode, modes to points; backward is the adjoint of
// each in reverse. x's modes are kept for it.
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
  const Layout x = expect_field(context, 0);
  const std::vector<Dimension> dimensions = dimensions_of(points_of(x.shape), kept_modes(context, x.shape));
  in_ = x.shape[1];
  out_ = options_.has("features") ? options_.integer("features") : in_;
  complex_ = complex_type(context.activations());

  const Layout y = with_channels(x, out_);
  const auto side = [&](const Layout& points, FftMap to_modes, FftMap to_points) {
    return Spectrum(context.device().family<Fft>(), context.mesh(),
                    {.points = points,
                     .dimensions = dimensions,
                     .to_modes = to_modes,
                     .to_points = to_points,
                     .activations = context.activations(),
                     .form = options_.choice("form", kForms),
                     .device = &context.device()},
                    fmt::format("layer '{}'", context.name()));
  };
  x_ = side(x, FftMap::kForward, FftMap::kForwardAdjoint);
  y_ = side(y, FftMap::kInverseAdjoint, FftMap::kInverse);
  const Shape& modes = x_.local_modes();
  const std::int64_t local = product(points_of(modes));
  if (modes.elements() > 0) {
    product_ = context.device().family<BatchedComplexGemms>().prepare(
        {.batch = modes[0], .in = in_, .out = out_, .modes = local, .dtype = complex_});
    product_scratch_ = context.workspace(product_->scratch_bytes());
  }
  elementwise_ = &context.device().family<Elementwise>();
  declare_weight(context);

  saved_ = context.saved({modes, complex_});
  y_modes_ = context.workspace(tensor_bytes(complex_, y_.local_modes().elements()));
  x_gradient_ = context.workspace(tensor_bytes(complex_, modes.elements()));
  for (int turn = 0; turn < 2; ++turn)
    between_[turn] = context.workspace(std::max(x_.between_bytes(turn), y_.between_bytes(turn)));
  scratch_ = context.workspace(std::max(x_.scratch_bytes(), y_.scratch_bytes()));
  context.output(placed(context, y));
}

void SpectralConv::declare_weight(InferContext& context) {
  const Layout& modes = x_.modes();
  std::vector<std::int64_t> extents{in_, out_};
  for (const std::int64_t kept : points_of(modes.shape)) extents.push_back(kept);
  extents.push_back(2);
  ParameterSpec weight;
  weight.name = options_.has("weight") ? std::string(options_.text("weight"))
                                       : fmt::format("{}.weight", context.name());
  weight.dtype = context.parameters();
  weight.shape = Shape(std::span<const std::int64_t>(extents));
  weight.init = Initializer::kUniformFromZero;
  weight.init_scale =
      options_.has("init_scale") ? options_.real("init_scale") : 1.0 / static_cast<double>(in_ * out_);
  for (const DimSharding& sharding : modes.sharding) {
    if (sharding.dim >= 2) weight.sharding.push_back(sharding);
  }
  weight_ = context.parameter(weight);
  // Ranks that have other samples of the same modes have terms of their own.
  weight_sum_ = GradientSum(context, weight, modes);
}

Spectrum::Memory SpectralConv::memory(RunContext& context) const {
  return {{context.workspace(between_[0]), context.workspace(between_[1])}, context.workspace(scratch_)};
}

TensorView SpectralConv::x_modes(TensorView bytes) const {
  return in_workspace(bytes, complex_, x_.local_modes());
}

TensorView SpectralConv::y_modes(RunContext& context) const {
  return in_workspace(context.workspace(y_modes_), complex_, y_.local_modes());
}

void SpectralConv::forward(ForwardContext& context) {
  const TensorView x = context.saved(saved_), y = y_modes(context);
  x_.to_modes(context.input(0), x, memory(context));
  if (product_ != nullptr)
    product_->forward(x, context.parameter(weight_), y, context.workspace(product_scratch_));
  y_.to_points(y, context.output(0), false, memory(context));
}

void SpectralConv::backward(BackwardContext& context) {
  const GradientSink dw = context.gradient(weight_), dx = context.input_gradient(0);
  const TensorView dy = y_modes(context), given = context.output_gradient(0);
  if (given.shape.rank() == 0) return;
  // Needed whatever this rank has or needs: the other ranks wait for its blocks.
  y_.to_modes(given, dy, memory(context));
  if (!dw.view.empty()) {
    if (product_ != nullptr) {
      product_->backward_weight(context.saved(saved_), dy, dw.view, weight_sum_.adds(dw),
                                context.workspace(product_scratch_));
    } else {  // no samples here
      weight_sum_.clear(*elementwise_, dw);
    }
    weight_sum_.close(dw);
  }
  // A gradient that no layer needs has no shape; one of an empty shard has.
  if (dx.view.shape.rank() == 0) return;
  const TensorView dx_modes = x_modes(context.workspace(x_gradient_));
  if (product_ != nullptr)
    product_->backward_input(context.parameter(weight_), dy, dx_modes, context.workspace(product_scratch_));
  x_.to_points(dx_modes, dx.view, dx.accumulate, memory(context));
}

}  // namespace tenon::fno
