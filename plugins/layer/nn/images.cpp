// Layers over images, and the windows that they slide.
#include "images.hpp"

#include <fmt/format.h>
#include <tenon/ops/reduce.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::nn {
namespace {

// Makes a window that fits the image from options.

void check_fit(const InferContext& context, const WindowSpec& window, const Shape& x) {
  for (int d = 0; d < 2; ++d) {
    if (window.places(d) > 0) continue;
    refuse(context,
           fmt::format("a kernel of {} with dilation {} spans {} elements, more than the {} of x {} along {} "
                       "with padding {} on both sides; make the kernel smaller or the padding larger",
                       window.kernel[d], window.dilation[d], window.dilation[d] * (window.kernel[d] - 1) + 1,
                       window.extent[d], x.text(), d == 0 ? "height" : "width", window.pad_low[d]));
  }
}

WindowSpec undilated(const InferContext& context, const Options& options, const Shape& x) {
  WindowSpec window;
  window.extent[0] = x[2], window.extent[1] = x[3];
  set_pair(context, options, "kernel", window.kernel);
  set_pair(context, options, options.has("stride") ? "stride" : "kernel", window.stride);
  set_pair(context, options, "padding", window.pad_low);
  for (int d = 0; d < 2; ++d) window.pad_high[d] = window.pad_low[d];
  return window;
}

}  // namespace

void set_pair(const InferContext& context, const Options& options, std::string_view name,
              std::int64_t (&pair)[3]) {
  const auto values = options.integers(name);
  if (values.empty() || values.size() > 2) {
    refuse(context, fmt::format("option '{}' takes one number or [height, width], found {} numbers", name,
                                values.size()));
  }
  pair[0] = values.front(), pair[1] = values.back();
}

WindowSpec window_over(const InferContext& context, const Options& options, const Shape& x) {
  const WindowSpec window = undilated(context, options, x);
  check_fit(context, window, x);
  return window;
}

WindowSpec dilated_window_over(const InferContext& context, const Options& options, const Shape& x) {
  WindowSpec window = undilated(context, options, x);
  set_pair(context, options, "dilation", window.dilation);
  check_fit(context, window, x);
  return window;
}

Shape image_of(const WindowSpec& window, std::int64_t batch, std::int64_t channels) {
  return {batch, channels, window.places(0), window.places(1)};
}

namespace {

// Layer `conv2d`: unfold, product, and the rows of the product back to planes; backward is the adjoint of
// each step in reverse. All steps walk the same chunks of samples. A site that accepts images needs none of
// them.

constexpr std::int64_t kChunkElements = std::int64_t{1} << 20;

}  // namespace

void Conv2d::infer(InferContext& context) {
  const Shape x = context.input(0).shape;
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
      context.fprop(sites_[group], windows, has_bias_ ? bias.rows(group * n_, (group + 1) * n_) : bias,
                    products, begin * places_);
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
      const SiteRef site = sites_[group];
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

namespace {

// Layers `max_pool2d` and `average_pool2d`: one operator of the device each way.

/// A window entirely in the padding would have no element to choose.
void expect_small_padding(const InferContext& context, const WindowSpec& window) {
  for (int d = 0; d < 2; ++d) {
    if (2 * window.pad_low[d] <= window.kernel[d]) continue;
    refuse(context,
           fmt::format("padding {} is more than half of the kernel {}", window.pad_low[d], window.kernel[d]));
  }
}

}  // namespace

void MaxPool2d::infer(InferContext& context) {
  const Shape x = context.input(0).shape;
  window_ = dilated_window_over(context, options_, x);
  expect_small_padding(context, window_);
  ops_ = &context.device().family<WindowOps>();
  const Shape y = image_of(window_, x[0], x[1]);
  index_ = context.saved({y, DType::kI32});
  context.output({y, context.activations()});
}

void MaxPool2d::forward(ForwardContext& context) {
  ops_->max_pool(window_, context.input(0), context.output(0), context.saved(index_));
}

void MaxPool2d::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.empty()) return;
  ops_->max_pool_backward(window_, context.saved(index_), context.output_gradient(0), dx.view, dx.accumulate);
}

void AveragePool2d::infer(InferContext& context) {
  const Shape x = context.input(0).shape;
  if (options_.boolean("global")) {
    for (int d = 0; d < 2; ++d) window_.extent[d] = window_.kernel[d] = x[2 + d];
  } else {
    window_ = window_over(context, options_, x);
    expect_small_padding(context, window_);
  }
  count_padding_ = options_.boolean("count_padding");
  ops_ = &context.device().family<WindowOps>();
  context.output({image_of(window_, x[0], x[1]), context.activations()});
}

void AveragePool2d::forward(ForwardContext& context) {
  ops_->average_pool(window_, context.input(0), count_padding_, context.output(0));
}

void AveragePool2d::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.empty()) return;
  ops_->average_pool_backward(window_, context.output_gradient(0), count_padding_, dx.view, dx.accumulate);
}

namespace {

// Layer `flatten`: a copy under another shape.

std::int64_t product(const Shape& shape, int begin, int end) {
  std::int64_t result = 1;
  for (int dim = begin; dim < end; ++dim) result *= shape[dim];
  return result;
}

Layout flattened(const InferContext& context, const Layout& x) {
  const int rank = x.shape.rank();
  Layout y{{x.shape[0], product(x.shape, 1, rank)}};
  for (const DimSharding& sharding : x.sharding) {
    if (sharding.dim == 0) {
      y.sharding.push_back(sharding);
      continue;
    }
    if (product(x.shape, 1, sharding.dim) != 1 || sharding_of(y, 1) != nullptr) {
      refuse(context,
             "shards of a sample must be runs of its elements, found " + layout_text(x) +
                 "; put a repartition before the layer that shards dimension 0, or dimension 1 alone");
    }
    DimSharding columns{1, sharding.axes, sharding.offsets};
    for (std::int64_t& offset : columns.offsets) offset *= product(x.shape, sharding.dim + 1, rank);
    y.sharding.push_back(columns);
  }
  return y;
}

}  // namespace

void Flatten::infer(InferContext& context) {
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  context.output(placed(context, flattened(context, expect_parts(context, 0))));
  passes_gradient(context, 0);
}

void Flatten::forward(ForwardContext& context) {
  device_->copy(flat(context.input(0)), flat(context.output(0)));
}

void Flatten::backward(BackwardContext& context) {
  pass_on(*device_, *elementwise_, context.output_gradient(0), context.input_gradient(0));
}

}  // namespace tenon::nn
