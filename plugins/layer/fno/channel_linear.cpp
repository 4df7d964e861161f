// Layer `channel_linear`: products of all samples at once where the device convolves images, else one per
// sample, on a channels-first site.
#include "channel_linear.hpp"

#include <fmt/format.h>
#include <tenon/ops/convolution.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::fno {

namespace {

/// Points are a plane of any height to a window of one point; devices compute some rows of it at a time.
std::int64_t width_of(std::int64_t points) {
  constexpr std::int64_t kMost = 256, kLeast = 16;
  std::int64_t width = std::min(points, kMost);
  while (width >= kLeast && points % width != 0) --width;
  return width < kLeast ? points : width;
}

}  // namespace

void ChannelLinear::infer(InferContext& context) {
  const Layout layout = expect_field(context, 0);
  const Shape x = context.input(0).shape;
  batch_ = x[0], in_ = x[1], points_ = product(points_of(x)), out_ = options_.integer("features");

  const bool normal = options_.has("init_scale");
  ParameterSpec weight;
  weight.name = options_.has("weight") ? std::string(options_.text("weight"))
                                       : fmt::format("{}.weight", context.name());
  weight.dtype = context.parameters();
  weight.shape = {out_, in_};
  weight.init = normal ? Initializer::kNormal : Initializer::kUniform;
  weight.init_scale = normal ? options_.real("init_scale") : 1.0 / std::sqrt(static_cast<double>(in_));
  weight_ = context.parameter(weight);
  const Layout y = with_channels(layout, out_);
  weight_sum_ = GradientSum(context, weight, y);
  elementwise_ = &context.device().family<Elementwise>();
  has_bias_ = options_.boolean("bias");
  if (has_bias_) {
    ParameterSpec bias;
    bias.name = fmt::format("{}.bias", context.name());
    bias.dtype = context.parameters();
    bias.shape = {out_};
    bias.decay = false;
    bias.init = Initializer::kZero;
    bias_ = context.parameter(bias);
    bias_sum_ = GradientSum(context, bias, y);
    sets_ = &context.device().family<PartNormOps>();
    sums_ = context.workspace(tensor_bytes(DType::kF64, out_));
    terms_ = context.workspace(tensor_bytes(context.parameters(), out_));
  }
  // A rank without points declares its product all the same, since precision policies count them.
  const std::int64_t row = std::max<std::int64_t>(1, points_);
  const SiteSpec site{.module = options_.text("module"),
                      .weight = weight_,
                      .m = std::max<std::int64_t>(1, batch_) * row,
                      .n = out_,
                      .k = in_,
                      .bias = has_bias_,
                      .chunk = row,
                      .output = 0,
                      .channels_first = true};
  WindowSpec point;
  point.extent[0] = row / width_of(row), point.extent[1] = width_of(row);
  site_ = batch_ * points_ == 0
              ? context.linear_site(site)
              : convolution_site(context, site,
                                 {.window = point, .batch = batch_, .channels = in_, .features = out_});
  height_ = point.extent[0];
  context.keep_input(0);
  context.output(placed(context, y));
}

TensorView ChannelLinear::sample(const TensorView& view, std::int64_t index) const {
  return view.rows(index, index + 1).reshaped({view.shape[1], points_});
}

TensorView ChannelLinear::images(const TensorView& view) const {
  return view.reshaped({batch_, view.shape[1], height_, points_ / height_});
}

void ChannelLinear::forward(ForwardContext& context) {
  const TensorView bias = has_bias_ ? context.parameter(bias_) : TensorView{};
  if (takes_images(context, site_))
    return context.fprop(site_, images(context.input(0)), bias, images(context.output(0)), 0);
  for (std::int64_t i = 0; points_ > 0 && i < batch_; ++i)
    context.fprop(site_, sample(context.input(0), i), bias, sample(context.output(0), i), i * points_);
}

void ChannelLinear::backward(BackwardContext& context) {
  const GradientSink dw = context.gradient(weight_), dx = context.input_gradient(0);
  const TensorView dy = context.output_gradient(0);
  if (batch_ * points_ == 0) {
    weight_sum_.clear(*elementwise_, dw);
  } else if (takes_images(context, site_)) {
    if (!dw.view.empty()) context.wgrad(site_, images(context.input(0)), images(dy), weight_sum_.adds(dw), 0);
    if (!dx.view.empty()) context.dgrad(site_, images(dy), images(dx.view), dx.accumulate, 0);
  } else {
    for (std::int64_t i = 0; i < batch_; ++i) {
      const TensorView one = sample(dy, i);
      if (!dw.view.empty())
        context.wgrad(site_, sample(context.input(0), i), one, weight_sum_.adds(dw) || i > 0, i * points_);
      if (!dx.view.empty()) context.dgrad(site_, one, sample(dx.view, i), dx.accumulate, i * points_);
    }
  }
  if (!dw.view.empty()) weight_sum_.close(dw);
  if (has_bias_) add_bias_gradient(context);
}

void ChannelLinear::add_bias_gradient(BackwardContext& context) {
  const GradientSink dbias = context.gradient(bias_);
  if (dbias.view.empty()) return;
  const TensorView sums = in_workspace(context.workspace(sums_), DType::kF64, {out_});
  sets_->sums(context.output_gradient(0).reshaped({batch_, out_, points_}), sums);
  if (bias_sum_.adds(dbias)) {
    const TensorView terms = in_workspace(context.workspace(terms_), dbias.view.dtype, {out_});
    elementwise_->convert(sums, terms);
    elementwise_->add(dbias.view, terms, dbias.view);
  } else {
    elementwise_->convert(sums, dbias.view);
  }
  bias_sum_.close(dbias);
}

}  // namespace tenon::fno
