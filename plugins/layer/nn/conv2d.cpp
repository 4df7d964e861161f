// Layer `conv2d`: unfold, product, and the rows of the product back to planes; backward is the adjoint of
// each step in reverse. All steps walk the same chunks of samples. A site that accepts images needs none of
// them.
#include "conv2d.hpp"

#include <tenon/ops/reduce.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::nn {
namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 20;

}  // namespace

void Conv2d::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_image(context);
  const std::int64_t features = options_.integer("features"), group_count = options_.integer("groups");
  if (x[1] % group_count != 0 || features % group_count != 0) {
    refuse(context, fmt::format("groups = {} must divide the {} channels of x and the {} features",
                                group_count, x[1], features));
  }
  window_ = dilated_window_over(context, options_, x);
  batch_ = x[0], places_ = window_.places();
  group_channels_ = x[1] / group_count;
  n_ = features / group_count, k_ = group_channels_ * window_.offsets();
  point_.spatial = 1, point_.extent[0] = places_;
  dtype_ = context.activations();
  const std::int64_t wanted = options_.integer("chunk");
  chunk_ = std::min(batch_, wanted > 0 ? wanted : std::max<std::int64_t>(1, kChunkElements / (places_ * k_)));

  const bool normal = options_.has("init_scale");
  ParameterSpec weight =
      weight_parameter(context, options_, {features, group_channels_, window_.kernel[0], window_.kernel[1]},
                       normal ? options_.real("init_scale") : 1.0 / std::sqrt(static_cast<double>(k_)));
  if (!normal) weight.init = Initializer::kUniform;
  weight_ = context.parameter(weight);
  has_bias_ = options_.boolean("bias");
  ops_ = &context.device().family<WindowOps>();
  if (has_bias_) {
    bias_ = context.parameter(vector_parameter(context, "bias", features, Initializer::kZero));
    reduce_ = &context.device().family<ReduceOps>();
    bias_scratch_ = context.workspace(reduce_->sum_rows_scratch(chunk_ * places_, n_, dtype_));
  }
  for (std::int64_t group = 0; group < group_count; ++group) {
    const SiteSpec site{.module = options_.text("module"),
                        .weight = weight_,
                        .first_weight_row = group * n_,
                        .m = batch_ * places_,
                        .n = n_,
                        .k = k_,
                        .bias = has_bias_,
                        .chunk = chunk_ * places_,
                        .output = 0};
    sites_.push_back(
        group_count > 1
            ? context.linear_site(site)
            : convolution_site(
                  context, site,
                  {.window = window_, .batch = batch_, .channels = group_channels_, .features = n_}));
  }
  columns_ = context.workspace(window_bytes(dtype_, chunk_ * places_ * k_));
  rows_ = context.workspace(window_bytes(dtype_, chunk_ * places_ * n_));
  context.keep_input(0);
  context.output({image_of(window_, batch_, features), dtype_});
}

TensorView Conv2d::columns(RunContext& context, std::int64_t samples) const {
  return window(context.workspace(columns_), 0, dtype_, {samples * places_, k_});
}

TensorView Conv2d::rows(RunContext& context, std::int64_t samples) const {
  return window(context.workspace(rows_), 0, dtype_, {samples * places_, n_});
}

void Conv2d::forward(ForwardContext& context) {
  const TensorView bias = has_bias_ ? context.parameter(bias_) : TensorView{};
  if (takes_images(context, sites_.front()))
    return context.fprop(sites_.front(), context.input(0), bias, context.output(0), 0);
  for (std::int64_t begin = 0; begin < batch_; begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, batch_);
    const TensorView x = context.input(0).rows(begin, end), y = context.output(0).rows(begin, end);
    const TensorView windows = columns(context, end - begin), products = rows(context, end - begin);
    for (std::int64_t group = 0; group < groups(); ++group) {
      ops_->unfold(window_, x, group * group_channels_, windows);
      context.fprop(sites_[static_cast<std::size_t>(group)], windows,
                    has_bias_ ? bias.rows(group * n_, (group + 1) * n_) : bias, products, begin * places_);
      ops_->fold(point_, products, group * n_, y, false);
    }
  }
}

void Conv2d::backward(BackwardContext& context) {
  const GradientSink dw = context.gradient(weight_), dx = context.input_gradient(0);
  const GradientSink dbias = has_bias_ ? context.gradient(bias_) : GradientSink{};
  if (takes_images(context, sites_.front())) {
    const TensorView dy = context.output_gradient(0);
    if (!dbias.view.empty()) ops_->sum_channels(dy, dbias.view, dbias.accumulate);
    if (!dw.view.empty()) context.wgrad(sites_.front(), context.input(0), dy, dw.accumulate, 0);
    if (!dx.view.empty()) context.dgrad(sites_.front(), dy, dx.view, dx.accumulate, 0);
    return;
  }
  for (std::int64_t begin = 0; begin < batch_; begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, batch_);
    const TensorView dy = context.output_gradient(0).rows(begin, end);
    const TensorView windows = columns(context, end - begin), products = rows(context, end - begin);
    for (std::int64_t group = 0; group < groups(); ++group) {
      const SiteRef site = sites_[static_cast<std::size_t>(group)];
      ops_->unfold(point_, dy, group * n_, products);
      if (!dbias.view.empty()) {
        reduce_->sum_rows(products, dbias.view.rows(group * n_, (group + 1) * n_),
                          dbias.accumulate || begin > 0, context.workspace(bias_scratch_));
      }
      if (!dw.view.empty()) {
        ops_->unfold(window_, context.input(0).rows(begin, end), group * group_channels_, windows);
        context.wgrad(site, windows, products, dw.accumulate || begin > 0, begin * places_);
      }
      if (dx.view.empty()) continue;
      context.dgrad(site, products, windows, false, begin * places_);
      ops_->fold(window_, windows, group * group_channels_, dx.view.rows(begin, end), dx.accumulate);
    }
  }
}

}  // namespace tenon::nn
