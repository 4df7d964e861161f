// Layer `conv`: the exchange, then per group and chunk of samples unfold, product, and its rows back to
// planes. Backward goes the same way in reverse: gradients of windows are added to the elements that they
// read, on whatever rank.
#include "conv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::distdl {
namespace {

constexpr std::int64_t kChunkElements = std::int64_t{1} << 20;

TensorView tensor(TensorView bytes, DType dtype, const Shape& shape) {
  return {bytes.data, shape, dtype, bytes.space};
}

}  // namespace

void Conv::infer(InferContext& context) {
  const ValueSpec x = expect_one_activation(context);
  features_ = options_.integer("features");
  const std::int64_t groups = options_.integer("groups");
  windows_.infer(context, options_, x);
  const Shape window = windows_.window_shape();
  if (window[1] % groups != 0 || features_ % groups != 0) {
    refuse(context, fmt::format("groups = {} must divide the {} channels of x and the {} features", groups,
                                window[1], features_));
  }
  dtype_ = x.dtype;
  channels_ = window[1] / groups, places_ = windows_.local().places();
  n_ = features_ / groups, k_ = channels_ * windows_.local().offsets();
  point_.spatial = 1, point_.extent[0] = places_;
  const std::int64_t samples = std::max<std::int64_t>(1, windows_.samples()),
                     wanted = options_.integer("chunk");
  const std::int64_t fitting = kChunkElements / (std::max<std::int64_t>(1, places_) * k_);
  chunk_ = std::min(samples, wanted > 0 ? wanted : std::max<std::int64_t>(1, fitting));
  ops_ = &context.device().family<WindowOps>();
  reduce_ = &context.device().family<ReduceOps>();
  const Layout y = windows_.output_layout(features_);
  declare_parameters(context, y);
  // A rank without outputs declares its products all the same, since precision policies count them.
  const std::int64_t rows = chunk_ * std::max<std::int64_t>(1, places_);
  for (std::int64_t group = 0; group < groups; ++group) {
    sites_.push_back(context.linear_site({.module = options_.text("module"),
                                          .weight = weight_,
                                          .first_weight_row = group * n_,
                                          .m = samples * std::max<std::int64_t>(1, places_),
                                          .n = n_,
                                          .k = k_,
                                          .bias = has_bias_,
                                          .chunk = rows,
                                          .output = 0}));
  }
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(dtype_bytes(dtype_, elements));
  };
  columns_ = context.workspace(bytes(rows * k_));
  rows_ = context.workspace(bytes(rows * n_));
  bias_scratch_ = context.workspace(reduce_->sum_rows_scratch(rows, n_, dtype_));
  gradient_ = context.workspace(bytes(window.elements()));
  window_ = context.saved({window, dtype_});
  context.output({part_of(y, context.grid().place()).extents, dtype_, y});
}

void Conv::declare_parameters(InferContext& context, const Layout& y) {
  ParameterSpec weight;
  weight.name = options_.has("weight") ? options_.text("weight") : fmt::format("{}.weight", context.name());
  weight.dtype = context.parameters();
  std::vector<std::int64_t> extents{features_, channels_};
  for (int d = 0; d < windows_.spatial(); ++d) extents.push_back(windows_.local().kernel[d]);
  weight.shape = Shape(std::span<const std::int64_t>(extents));
  const bool normal = options_.has("init_scale");
  weight.init = normal ? Initializer::kNormal : Initializer::kUniform;
  weight.init_scale = normal ? options_.real("init_scale") : 1.0 / std::sqrt(static_cast<double>(k_));
  weight_ = context.parameter(weight);
  weight_sum_ = GradientSum(context, weight, y);
  has_bias_ = options_.boolean("bias");
  if (!has_bias_) return;
  ParameterSpec bias;
  bias.name = fmt::format("{}.bias", context.name());
  bias.dtype = context.parameters();
  bias.shape = Shape{features_};
  bias.decay = false;
  bias.init = Initializer::kZero;
  bias_ = context.parameter(bias);
  bias_sum_ = GradientSum(context, bias, y);
}

TensorView Conv::columns(RunContext& context, std::int64_t samples) const {
  return tensor(context.workspace(columns_), dtype_, {samples * places_, k_});
}

TensorView Conv::rows(RunContext& context, std::int64_t samples) const {
  return tensor(context.workspace(rows_), dtype_, {samples * places_, n_});
}

void Conv::forward(ForwardContext& context) {
  const TensorView window = context.saved(window_);
  windows_.fetch(context.input(0), window, Pads::kZero);
  if (windows_.empty()) return;
  const TensorView bias = has_bias_ ? context.parameter(bias_) : TensorView{};
  for (std::int64_t begin = 0; begin < windows_.samples(); begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, windows_.samples());
    const TensorView read = columns(context, end - begin), products = rows(context, end - begin);
    for (std::size_t g = 0; g < sites_.size(); ++g) {
      const auto group = static_cast<std::int64_t>(g);
      ops_->unfold(windows_.local(), window.rows(begin, end), group * channels_, read);
      context.fprop(sites_[g], read, has_bias_ ? bias.rows(group * n_, (group + 1) * n_) : bias, products,
                    begin * places_);
      ops_->fold(point_, products, group * n_, context.output(0).rows(begin, end), false);
    }
  }
}

void Conv::backward(BackwardContext& context) {
  const GradientSink dw = context.gradient(weight_), dx = context.input_gradient(0);
  const GradientSink dbias = has_bias_ ? context.gradient(bias_) : GradientSink{};
  const TensorView window = context.saved(window_), dy = context.output_gradient(0);
  const TensorView given = tensor(context.workspace(gradient_), dtype_, window.shape);
  if (!dw.view.empty()) open(weight_sum_, dw);
  if (!dbias.view.empty()) open(bias_sum_, dbias);
  for (std::int64_t begin = 0; begin < windows_.samples() && !windows_.empty(); begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, windows_.samples());
    const TensorView read = columns(context, end - begin), products = rows(context, end - begin);
    for (std::size_t g = 0; g < sites_.size(); ++g) {
      const auto group = static_cast<std::int64_t>(g);
      ops_->unfold(point_, dy.rows(begin, end), group * n_, products);
      if (!dbias.view.empty()) {
        reduce_->sum_rows(products, dbias.view.rows(group * n_, (group + 1) * n_), true,
                          context.workspace(bias_scratch_));
      }
      if (!dw.view.empty()) {
        ops_->unfold(windows_.local(), window.rows(begin, end), group * channels_, read);
        context.wgrad(sites_[g], read, products, true, begin * places_);
      }
      if (dx.view.shape.rank() == 0) continue;
      context.dgrad(sites_[g], products, read, false, begin * places_);
      ops_->fold(windows_.local(), read, group * channels_, given.rows(begin, end), false);
    }
  }
  if (!dw.view.empty()) weight_sum_.close(dw);
  if (!dbias.view.empty()) bias_sum_.close(dbias);
  if (dx.view.shape.rank() > 0) windows_.give_back(given, dx);
}

}  // namespace tenon::distdl
