// Both passes walk the same chunks of rows. Only chunks of logits are ever overwritten: by their gradient,
// where the dtypes agree or rows have factors.
#include "chunked_head.hpp"

#include <algorithm>

namespace tenon::nn {
namespace {

constexpr std::int64_t kChunkLogits = std::int64_t{16} << 20;

std::int64_t chunk_rows(std::int64_t wanted, std::int64_t rows, std::int64_t vocabulary) {
  if (wanted > 0) return std::min(wanted, rows);
  const std::int64_t fitting = std::max<std::int64_t>(kChunkLogits / vocabulary, 1);
  if (fitting >= rows) return rows;
  // Products prefer whole tiles, and the last chunk should not be tiny.
  const std::int64_t whole = fitting >= 32 ? fitting / 16 * 16 : fitting;
  const std::int64_t chunks = (rows + whole - 1) / whole, even = (rows + chunks - 1) / chunks;
  return std::min(whole, (even + 15) / 16 * 16);
}

}  // namespace

void ChunkedHead::infer(InferContext& context, const Options& options, const Layout& counted, bool factors) {
  const Shape x = context.input(0).shape;
  rows_ = rows_of(x);
  vocabulary_ = options.integer("vocabulary");
  chunk_ = chunk_rows(options.integer("chunk_rows"), rows_, vocabulary_);
  logit_type_ = statistics(context.activations());

  const ParameterSpec weight =
      weight_parameter(context, options, {vocabulary_, columns_of(x)}, options.real("init_scale"));
  weight_ = context.parameter(weight);
  weight_sum_ = GradientSum(context, weight, counted);
  // A rank without rows declares its product all the same, since precision policies count them.
  site_ = context.linear_site({.module = "head",
                               .weight = weight_,
                               .input = 0,
                               .m = std::max<std::int64_t>(1, rows_),
                               .n = vocabulary_,
                               .k = columns_of(x),
                               .chunk = chunk_});
  nn_ = &context.device().family<NeuralOps>();
  elementwise_ = &context.device().family<Elementwise>();
  if (factors) multiply_ = &context.device().family<MultiplyOps>();
  lse_ = context.saved({{rows_}, logit_type_});
  if (context.training() && chunk_ == rows_) {
    logits_ = context.saved({{rows_, vocabulary_}, logit_type_});
  } else {
    chunk_logits_ = context.workspace(window_bytes(logit_type_, chunk_ * vocabulary_));
  }
  if (context.activations() != logit_type_) {
    gradients_ = context.workspace(window_bytes(context.activations(), chunk_ * vocabulary_));
  }
  if (!keeps_logits()) context.keep_input(0);
  context.keep_input(1);
}

TensorView ChunkedHead::logits(RunContext& context, std::int64_t rows) const {
  if (keeps_logits()) return context.saved(logits_);
  return window(context.workspace(chunk_logits_), 0, logit_type_, {rows, vocabulary_});
}

void ChunkedHead::forward(ForwardContext& context, double smoothing, TensorView losses) {
  const TensorView targets = flat(context.input(1)), lse = context.saved(lse_);
  each_chunk(context, [&](std::int64_t begin, std::int64_t end, const TensorView& chunk) {
    nn_->softmax_cross_entropy(chunk, targets.rows(begin, end), smoothing, losses.rows(begin, end),
                               lse.rows(begin, end));
  });
}

void ChunkedHead::backward(BackwardContext& context, double smoothing, double scale, TensorView factors) {
  const TensorView targets = flat(context.input(1)), lse = context.saved(lse_);
  each_gradient(context, [&](std::int64_t begin, std::int64_t end, const TensorView& chunk,
                             const TensorView& gradient) {
    const TensorView written = factors.empty() ? gradient : chunk;
    nn_->softmax_cross_entropy_backward(chunk, targets.rows(begin, end), smoothing, lse.rows(begin, end),
                                        scale, written);
    if (factors.empty()) return;
    multiply_->multiply_rows(chunk, factors.rows(begin, end));
    if (gradient.data != chunk.data) elementwise_->convert(chunk, gradient);
  });
}

}  // namespace tenon::nn
