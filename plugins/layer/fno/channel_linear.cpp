// Layer `channel_linear`: planes to rows, product, rows to planes; backward is the adjoint of each in
// reverse. All of it walks the same chunks of samples.
#include "channel_linear.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::fno {
namespace {

/// Rows of one chunk stay in the second cache.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 18;

}  // namespace

void ChannelLinear::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Layout layout = expect_field(context, 0);
  const Shape x = context.input(0).shape;
  batch_ = x[0], in_ = x[1], points_ = product(points_of(x)), out_ = options_.integer("features");
  dtype_ = context.activations();
  // Lines are what a device shares among its threads.
  const std::int64_t line = x[x.rank() - 1];
  point_.spatial = 2, point_.extent[0] = points_ / std::max<std::int64_t>(1, line), point_.extent[1] = line;
  const std::int64_t wanted = options_.integer("chunk"),
                     most = kChunkElements / std::max<std::int64_t>(1, points_ * std::max(in_, out_));
  chunk_ = std::clamp<std::int64_t>(wanted > 0 ? wanted : most, 1, std::max<std::int64_t>(1, batch_));

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
  ops_ = &context.device().family<WindowOps>();
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
    reduce_ = &context.device().family<ReduceOps>();
    bias_scratch_ = context.workspace(reduce_->sum_rows_scratch(chunk_ * points_, out_, dtype_));
  }
  // A rank without points declares its product all the same, since precision policies count them.
  const std::int64_t row = std::max<std::int64_t>(1, points_);
  site_ = context.linear_site({.module = options_.text("module"),
                               .weight = weight_,
                               .m = std::max<std::int64_t>(1, batch_) * row,
                               .n = out_,
                               .k = in_,
                               .bias = has_bias_,
                               .chunk = chunk_ * row,
                               .output = 0});
  x_rows_ = context.workspace(tensor_bytes(dtype_, chunk_ * points_ * in_));
  y_rows_ = context.workspace(tensor_bytes(dtype_, chunk_ * points_ * out_));
  context.keep_input(0);
  context.output(placed(context, y));
}

TensorView ChannelLinear::rows(RunContext& context, WorkspaceRef memory, std::int64_t samples,
                               std::int64_t channels) const {
  return in_workspace(context.workspace(memory), dtype_, {samples * points_, channels});
}

void ChannelLinear::forward(ForwardContext& context) {
  if (points_ == 0) return;
  const TensorView bias = has_bias_ ? context.parameter(bias_) : TensorView{};
  for (std::int64_t begin = 0; begin < batch_; begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, batch_);
    const TensorView x = rows(context, x_rows_, end - begin, in_),
                     y = rows(context, y_rows_, end - begin, out_);
    ops_->unfold(point_, context.input(0).rows(begin, end), 0, x);
    context.fprop(site_, x, bias, y, begin * points_);
    ops_->fold(point_, y, 0, context.output(0).rows(begin, end), false);
  }
}

void ChannelLinear::backward(BackwardContext& context) {
  const GradientSink dw = context.gradient(weight_), dx = context.input_gradient(0);
  const GradientSink dbias = has_bias_ ? context.gradient(bias_) : GradientSink{};
  if (batch_ * points_ == 0) {
    weight_sum_.clear(*elementwise_, dw);
    bias_sum_.clear(*elementwise_, dbias);
  }
  for (std::int64_t begin = 0; points_ > 0 && begin < batch_; begin += chunk_) {
    const std::int64_t end = std::min(begin + chunk_, batch_);
    const TensorView x = rows(context, x_rows_, end - begin, in_),
                     dy = rows(context, y_rows_, end - begin, out_);
    ops_->unfold(point_, context.output_gradient(0).rows(begin, end), 0, dy);
    if (!dbias.view.empty())
      reduce_->sum_rows(dy, dbias.view, bias_sum_.adds(dbias) || begin > 0, context.workspace(bias_scratch_));
    if (!dw.view.empty()) {
      ops_->unfold(point_, context.input(0).rows(begin, end), 0, x);
      context.wgrad(site_, x, dy, weight_sum_.adds(dw) || begin > 0, begin * points_);
    }
    if (dx.view.empty()) continue;
    context.dgrad(site_, dy, x, false, begin * points_);
    ops_->fold(point_, x, 0, dx.view.rows(begin, end), dx.accumulate);
  }
  if (!dw.view.empty()) weight_sum_.close(dw);
  if (!dbias.view.empty()) bias_sum_.close(dbias);
}

}  // namespace tenon::fno
