// Losses and metrics: sums over rows on the device, the last step on the host.
#include "losses.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::nn {

// Sum and count of a loss. Counting happens on the host: targets are few beside logits.

Layout expect_targets(const InferContext& context, std::string_view rows) {
  const Layout all = context.input(0).layout, targets = context.input(1).layout;
  if (targets.shape.elements() != rows_of(all.shape)) {
    refuse(context, fmt::format("expected one target per row of {} {}, found targets {}", rows,
                                all.shape.text(), targets.shape.text()));
  }
  if (all.whole() && targets.whole()) return targets;  // of whatever shape
  const int last = all.shape.rank() - 1;
  Layout wanted{Shape(all.shape.extents().first(last)), {}, all.partial};
  for (const DimSharding& sharding : all.sharding) {
    if (sharding.dim != last) {
      wanted.sharding.push_back(sharding);
    } else if (sharding.offsets.size() > 2) {
      refuse(context, fmt::format("the last dimension of {} is sharded ({}), but a row must not be; put a "
                                  "repartition before the layer that shards other dimensions",
                                  rows, layout_text(all)));
    }
  }
  if (!(wanted == targets) || !wanted.partial.empty()) {
    refuse(context, fmt::format("the rows of {} and the targets must be sharded alike over the mesh and must "
                                "not be partial sums, found {}, and {}; put a repartition before one",
                                rows, layout_text(all), layout_text(targets)));
  }
  return targets;
}

void LossSum::infer(InferContext& context, const Layout& counted, std::int64_t rows) {
  device_ = &context.device();
  reduce_ = &device_->family<ReduceOps>();
  if (device_->space() != MemorySpace::kHost) staging_.resize(rows);
  if (const std::vector<int> axes = sharded_axes(counted); !axes.empty()) {
    const Layout whole{{2}}, terms{whole.shape, {}, axes};
    all_parts_ = redistribution(context.mesh(), {.from = terms, .to = whole, .dtype = DType::kF64},
                                fmt::format("layer '{}': its sums over parts", context.name()));
  }
  context.output({{2}, DType::kF64, {{2}}});
}

void LossSum::write(TensorView losses, TensorView targets, TensorView output) {
  std::span<const std::int32_t> ids = targets.span<std::int32_t>();
  if (targets.space != MemorySpace::kHost) {
    ids = {staging_.data(), ids.size()};
    device_->copy(targets, {staging_.data(), targets.shape, DType::kI32, MemorySpace::kHost});
    device_->synchronize();
  }
  const auto counted = std::count_if(ids.begin(), ids.end(), [](std::int32_t id) { return id >= 0; });
  write(reduce_->sum(losses), static_cast<double>(counted), output);
}

void LossSum::write(double sum, double count, TensorView output) {
  double result[2] = {sum, count};
  const TensorView pair{result, {2}, DType::kF64, MemorySpace::kHost};
  if (all_parts_ != nullptr) all_parts_->forward(pair, pair);
  device_->copy(pair, output);
  device_->synchronize();  // `result` ends with this call
}

void HostTerms::infer(InferContext& context, const Layout& places) {
  elements_ = context.input(0).shape.elements();
  type_ = statistics(context.activations());
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  reduce_ = &device_->family<ReduceOps>();
  wide_ = context.workspace(window_bytes(DType::kF64, elements_));
  rounded_ = context.workspace(window_bytes(type_, elements_));
  narrow_ = context.workspace(window_bytes(DType::kF64, elements_));
  sum_.infer(context, places, 0);
}

void HostTerms::read(RunContext& context, int input, std::vector<double>& to) {
  const TensorView wide = window(context.workspace(wide_), 0, DType::kF64, {elements_});
  elementwise_->convert(flat(context.input(input)), wide);
  const auto here = wide_stage_.read(*device_, wide).span<double>();
  to.assign(here.begin(), here.end());
}

TensorView HostTerms::rounded(RunContext& context, const std::vector<double>& values) {
  const TensorView result = window(context.workspace(rounded_), 0, type_, {elements_});
  const TensorView here = rounded_stage_.room(result);
  if (type_ == DType::kF64) {
    std::copy(values.begin(), values.end(), here.as<double>());
  } else {
    std::transform(values.begin(), values.end(), here.as<float>(),
                   [](double value) { return static_cast<float>(value); });
  }
  rounded_stage_.write(*device_, result);
  return result;
}

void HostTerms::write(ForwardContext& context, const std::vector<double>& terms, double counted) {
  sum_.write(reduce_->sum(rounded(context, terms)), counted, context.output(0));
}

void HostTerms::pass(BackwardContext& context, const std::vector<double>& gradient,
                     const GradientSink& sink) {
  if (sink.view.empty()) return;
  TensorView passed = rounded(context, gradient);
  if (sink.view.dtype != type_) {
    const TensorView narrow = window(context.workspace(narrow_), 0, sink.view.dtype, passed.shape);
    elementwise_->convert(passed, narrow);
    passed = narrow;
  }
  pass_on(*device_, *elementwise_, passed, sink);
}

// Layer `softmax_cross_entropy`: keeps one log-sum-exp per row instead of the probabilities.

void SoftmaxCrossEntropy::infer(InferContext& context) {
  const Layout counted = expect_targets(context, "logits");
  const Shape logits = context.input(0).shape;
  const std::int64_t rows = rows_of(logits);
  device_ = &context.device();
  nn_ = &device_->family<NeuralOps>();
  elementwise_ = &device_->family<Elementwise>();
  const DType type = statistics(context.activations());
  lse_ = context.saved({{rows}, type});
  losses_ = context.workspace(window_bytes(type, rows));
  spare_ = context.workspace(window_bytes(context.activations(), logits.elements()));
  context.keep_input(0);
  context.keep_input(1);
  sum_.infer(context, counted, rows);
}

void SoftmaxCrossEntropy::forward(ForwardContext& context) {
  const TensorView lse = context.saved(lse_), targets = flat(context.input(1));
  const TensorView losses = window(context.workspace(losses_), 0, lse.dtype, targets.shape);
  nn_->softmax_cross_entropy(matrix(context.input(0)), targets, smoothing_, losses, lse);
  sum_.write(losses, targets, context.output(0));
}

void SoftmaxCrossEntropy::backward(BackwardContext& context) {
  const GradientSink dx = context.input_gradient(0);
  if (dx.view.empty()) return;
  const TensorView logits = matrix(context.input(0));
  const TensorView written =
      dx.accumulate ? window(context.workspace(spare_), 0, logits.dtype, logits.shape) : matrix(dx.view);
  nn_->softmax_cross_entropy_backward(logits, flat(context.input(1)), smoothing_, context.saved(lse_), seed(),
                                      written);
  if (dx.accumulate) pass_on(*device_, *elementwise_, written, dx);
}

// Layer `mse`: differences and squares in float32 (float64) whatever the activations are.

void Mse::infer(InferContext& context) {
  const Shape x = context.input(0).shape;
  const Layout layout = context.input(0).layout, targets = context.input(1).layout;
  if (!(layout.shape == targets.shape)) {
    refuse(context, "expected predictions and targets of equal shape, found " + layout.shape.text() +
                        " and " + targets.shape.text());
  }
  if (!(layout == targets) || !layout.partial.empty()) {
    refuse(
        context,
        "predictions and targets must be sharded alike over the mesh and must not be partial sums, found " +
            layout_text(layout) + ", and " + layout_text(targets) + "; put a repartition before one");
  }
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  reduce_ = &device_->family<ReduceOps>();
  const std::size_t bytes = window_bytes(statistics(context.activations()), x.elements());
  left_ = context.workspace(bytes);
  right_ = context.workspace(bytes);
  narrow_ = context.workspace(window_bytes(context.activations(), x.elements()));
  context.keep_input(0);
  context.keep_input(1);
  sum_.infer(context, layout, 0);
}

Mse::Error Mse::difference(RunContext& context) const {
  const TensorView x = flat(context.input(0));
  const TensorView left = window(context.workspace(left_), 0, statistics(x.dtype), x.shape),
                   right = window(context.workspace(right_), 0, statistics(x.dtype), x.shape);
  elementwise_->convert(x, left);
  elementwise_->convert(flat(context.input(1)), right);
  return {left, elementwise_->subtract_targets(left, right, left)};
}

void Mse::forward(ForwardContext& context) {
  const Error error = difference(context);
  sum_.write(reduce_->sum_of_squares(error.values), static_cast<double>(error.counted), context.output(0));
}

void Mse::backward(BackwardContext& context) {
  const TensorView error = difference(context).values;
  elementwise_->scale(error, 2 * seed());
  for (int i = 0; i < 2; ++i) {
    if (i == 1) elementwise_->scale(error, -1);
    const GradientSink sink = context.input_gradient(i);
    if (sink.view.empty()) continue;
    const TensorView narrow = window(context.workspace(narrow_), 0, sink.view.dtype, error.shape);
    elementwise_->convert(error, narrow);
    pass_on(*device_, *elementwise_, narrow, sink);
  }
}

// Layer `accuracy`: the host compares logits, which are few beside the values they come from.

void Accuracy::infer(InferContext& context) {
  const Layout counted = expect_targets(context, "logits");
  const Shape logits = context.input(0).shape;
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  wide_ = context.workspace(window_bytes(DType::kF64, logits.elements()));
  logits_.resize(logits.elements());
  targets_.resize(rows_of(logits));
  sum_.infer(context, counted, 0);
}

void Accuracy::forward(ForwardContext& context) {
  const TensorView logits = flat(context.input(0)), targets = flat(context.input(1));
  const TensorView wide = window(context.workspace(wide_), 0, DType::kF64, logits.shape);
  elementwise_->convert(logits, wide);
  device_->copy(wide, {logits_.data(), logits.shape, DType::kF64, MemorySpace::kHost});
  device_->copy(targets, {targets_.data(), targets.shape, DType::kI32, MemorySpace::kHost});
  device_->synchronize();
  const std::size_t columns = logits_.size() / std::max<std::size_t>(1, targets_.size());
  std::int64_t counted = 0, right = 0;
  for (std::size_t row = 0; row < targets_.size(); ++row) {
    if (targets_[row] < 0) continue;
    const auto begin = logits_.begin() + static_cast<std::ptrdiff_t>(row * columns);
    const auto greatest = std::max_element(begin, begin + static_cast<std::ptrdiff_t>(columns)) - begin;
    ++counted;
    right += greatest == targets_[row] ? 1 : 0;
  }
  sum_.write(static_cast<double>(right), static_cast<double>(counted), context.output(0));
}

void Accuracy::backward(BackwardContext& context) {
  const GradientSink logits = context.input_gradient(0);
  if (!logits.view.empty() && !logits.accumulate) elementwise_->fill(flat(logits.view), 0);
}

}  // namespace tenon::nn
