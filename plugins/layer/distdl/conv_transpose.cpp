// Layer `conv_transpose`: the exchange of inputs, then per group and chunk of samples one product for each
// input, whose columns are folded onto the bias; outputs that no window reaches keep it. Every output adds
// the same terms in the same order on whatever rank. Backward runs the same steps in reverse: gradients are
// added to their inputs on whatever rank these are.
#include "conv_transpose.hpp"

#include "filters.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::distdl {
namespace {

/// Number of outputs along dimension `d` after the channels.
std::int64_t extent_of(const InferContext& context, const Options& options, const Shape& x, int d,
                       const Sliding& window) {
  const int dim = d + 2;
  const std::int64_t more = number_for(context, options, "output_padding", d, x.rank() - 2);
  if (more >= std::max(window.stride, window.dilation)) {
    refuse(context,
           fmt::format("output_padding must be smaller than the stride or the dilation, which are {} "
                       "and {} along dimension {}; found {}",
                       window.stride, window.dilation, dim, more));
  }
  const std::int64_t all = (x[dim] - 1) * window.stride + window.dilation * (window.kernel - 1) + more + 1;
  if (all <= 2 * window.pad_low) {
    refuse(context,
           fmt::format("padding {} leaves out as many of the {} outputs on both sides along dimension "
                       "{} of x {}, so that none is left; lower it",
                       window.pad_low, all, dim, x.text()));
  }
  return all - 2 * window.pad_low;
}

}  // namespace

void ConvTranspose::infer(InferContext& context) {
  const ValueSpec x = expect_summed(context);
  expect_planes(context, x.layout);
  expect_whole_channels(context, x.layout);
  features_ = options_.integer("features"), groups_ = options_.integer("groups");
  const std::int64_t channels = x.layout.shape[1];
  if (channels % groups_ != 0 || features_ % groups_ != 0) {
    refuse(context, fmt::format("groups = {} must divide the {} channels of x and the {} features", groups_,
                                channels, features_));
  }
  dtype_ = x.dtype, channels_ = channels / groups_;
  infer_windows(context, x);
  ops_ = &context.device().family<WindowOps>();
  elementwise_ = &context.device().family<Elementwise>();
  declare_parameters(context);
  declare_sites(context);
  context.output(halo_.output(context, features_));
}

void ConvTranspose::infer_windows(InferContext& context, const ValueSpec& x) {
  const Shape& inputs = x.layout.shape;
  window_.spatial = inputs.rank() - 2;
  std::vector<Sliding> windows;
  std::vector<Halo::Reach> reaches;
  for (int d = 0; d < window_.spatial; ++d) {
    windows.push_back(sliding_for(context, options_, d, window_.spatial));
    // An output reads what the gradient of a convolution's input reads.
    reaches.push_back({sliding_gradient_map(windows.back(), inputs[d + 2]),
                       extent_of(context, options_, inputs, d, windows.back())});
  }
  halo_.infer(context, x, reaches);
  for (int d = 0; d < window_.spatial; ++d) {
    const Sliding& window = windows[d];
    const ElementRange made = halo_.made(d + 2), read = halo_.read(d).wanted;
    window_.kernel[d] = window.kernel, window_.stride[d] = window.stride;
    window_.dilation[d] = window.dilation;
    window_.extent[d] = made.size();
    // Distances from the first input's window begin to the rank's first output, and from its last output to
    // the last input's window end.
    window_.pad_low[d] = made.begin - (window.stride * read.begin - window.pad_low);
    window_.pad_high[d] = window.stride * (read.end - 1) - window.pad_low +
                          window.dilation * (window.kernel - 1) + 1 - made.end;
  }
  places_ = window_.places();
  point_.spatial = 1, point_.extent[0] = places_;
}

void ConvTranspose::declare_parameters(InferContext& context) {
  n_ = features_ / groups_ * window_.offsets(), k_ = channels_;
  const Layout y = halo_.output_layout(features_);
  std::vector<std::int64_t> extents{features_};
  for (int d = 0; d < window_.spatial; ++d) extents.push_back(window_.kernel[d]);
  extents.push_back(channels_);
  const ParameterSpec weight =
      filter_weight(context, options_, Shape(std::span<const std::int64_t>(extents)), n_);
  weight_ = context.parameter(weight);
  weight_sum_ = GradientSum(context, weight, y);
  has_bias_ = options_.boolean("bias");
  if (!has_bias_) return;
  const ParameterSpec bias = filter_bias(context, features_);
  bias_ = context.parameter(bias);
  bias_sum_ = GradientSum(context, bias, y);
}

void ConvTranspose::declare_sites(InferContext& context) {
  // A rank that reads nothing declares its products all the same, since precision policies count them.
  const std::int64_t samples = std::max<std::int64_t>(1, halo_.samples()),
                     places = std::max<std::int64_t>(1, places_);
  chunk_ = samples_at_a_time(options_, samples, places * n_);
  for (std::int64_t group = 0; group < groups_; ++group) {
    sites_.push_back(context.linear_site({.module = options_.text("module"),
                                          .weight = weight_,
                                          .first_weight_row = group * n_,
                                          .m = samples * places,
                                          .n = n_,
                                          .k = k_,
                                          .chunk = chunk_ * places}));
  }
  const auto room = [&](std::int64_t elements) { return context.workspace(dtype_bytes(dtype_, elements)); };
  rows_ = room(chunk_ * places * k_);
  columns_ = room(chunk_ * places * n_);
  gradient_ = room(halo_.window_shape().elements());
  inputs_ = context.saved({halo_.window_shape(), dtype_});
}

TensorView ConvTranspose::rows(RunContext& context, std::int64_t samples) const {
  return tensor(context.workspace(rows_), dtype_, {samples * places_, k_});
}

TensorView ConvTranspose::columns(RunContext& context, std::int64_t samples) const {
  return tensor(context.workspace(columns_), dtype_, {samples * places_, n_});
}

void ConvTranspose::forward(ForwardContext& context) {
  const TensorView inputs = context.saved(inputs_), y = context.output(0);
  halo_.fetch(context.input(0), inputs);
  if (halo_.empty()) return;
  if (has_bias_) {
    ops_->fill_channels(context.parameter(bias_), y);
  } else {
    elementwise_->fill(y, 0);
  }
  for (std::int64_t begin = 0; begin < halo_.samples() && places_ > 0; begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, halo_.samples());
    const TensorView read = rows(context, end - begin), products = columns(context, end - begin);
    for (std::size_t g = 0; g < sites_.size(); ++g) {
      const auto group = static_cast<std::int64_t>(g);
      ops_->unfold(point_, inputs.rows(begin, end), group * channels_, read);
      context.fprop(sites_[g], read, {}, products, begin * places_);
      ops_->fold(window_, products, group * (features_ / groups_), y.rows(begin, end), true);
    }
  }
}

void ConvTranspose::backward(BackwardContext& context) {
  const GradientSink dw = context.gradient(weight_), dx = context.input_gradient(0);
  const GradientSink dbias = has_bias_ ? context.gradient(bias_) : GradientSink{};
  const TensorView inputs = context.saved(inputs_), dy = context.output_gradient(0);
  const TensorView given = tensor(context.workspace(gradient_), dtype_, inputs.shape);
  weight_sum_.clear(*elementwise_, dw);
  bias_sum_.clear(*elementwise_, dbias);
  if (!dbias.view.empty() && !halo_.empty()) ops_->sum_channels(dy, dbias.view, true);
  for (std::int64_t begin = 0; begin < halo_.samples() && places_ > 0; begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, halo_.samples());
    const TensorView read = rows(context, end - begin), products = columns(context, end - begin);
    for (std::size_t g = 0; g < sites_.size(); ++g) {
      const auto group = static_cast<std::int64_t>(g);
      ops_->unfold(window_, dy.rows(begin, end), group * (features_ / groups_), products);
      if (!dw.view.empty()) {
        ops_->unfold(point_, inputs.rows(begin, end), group * channels_, read);
        context.wgrad(sites_[g], read, products, true, begin * places_);
      }
      if (dx.view.shape.rank() == 0) continue;
      context.dgrad(sites_[g], products, read, false, begin * places_);
      ops_->fold(point_, read, group * channels_, given.rows(begin, end), false);
    }
  }
  if (!dw.view.empty()) weight_sum_.close(dw);
  if (!dbias.view.empty()) bias_sum_.close(dbias);
  if (dx.view.shape.rank() > 0) halo_.give_back(given, dx);
}

}  // namespace tenon::distdl
