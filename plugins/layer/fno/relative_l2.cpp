// Layer `relative_l2`. With e = x - t, s = scale and T = offset + s t: loss = s ||e|| / ||T||, its gradients
// are dx = s e / (||e|| ||T||) and dt = -dx - s^2 ||e|| T / ||T||^3. The device computes sums in float64, the
// host the quotient of each sample.
#include "relative_l2.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::fno {
namespace {

constexpr std::int64_t kSums = 4;
static_assert(sizeof(SampleSums) == kSums * sizeof(double));

}  // namespace

RelativeError::RelativeError(const SampleSums& sums, double offset, double scale) {
  const double squares = offset == 0 ? scale * scale * sums.squares
                                     : scale * scale * sums.squares + 2 * offset * scale * sums.values +
                                           offset * offset * sums.points;
  if (!std::isfinite(squares) || squares <= 0) return;
  counts = true;
  target_norm = std::sqrt(squares);
  error_norm = std::sqrt(sums.error);
  loss = std::abs(scale) * error_norm / target_norm;
}

RelativeL2::RelativeL2(const Options& options)
    : Loss(options), offset_(options.real("offset")), scale_(options.real("scale")) {}

void RelativeL2::infer(InferContext& context) {
  const Layout layout = context.input(0).layout, targets = context.input(1).layout;
  if (!(layout.shape == targets.shape))
    refuse(context, "expected predictions and targets of equal shape, found " + layout.shape.text() +
                        " and " + targets.shape.text());
  if (!(layout == targets) || !layout.partial.empty())
    refuse(
        context,
        "predictions and targets must be sharded alike over the mesh and must not be partial sums, found " +
            layout_text(layout) + ", and " + layout_text(targets) + "; put a repartition before one");
  const Shape x = context.input(0).shape;
  batch_ = x[0], points_ = batch_ == 0 ? 0 : x.elements() / batch_;
  dtype_ = statistics(context.activations());
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  reduce_ = &device_->family<ReduceOps>();
  sums_.resize(layout.shape[0]);
  first_sample_ = part_of(layout, context.mesh().place()).offset[0];
  if (const std::vector<int> axes = sharded_axes(layout); !axes.empty()) {
    const Layout whole{{layout.shape[0], kSums}}, terms{whole.shape, {}, axes};
    all_parts_ = redistribution(context.mesh(), {.from = terms, .to = whole, .dtype = DType::kF64},
                                "layer '" + std::string(context.name()) + "': its sums over parts");
  }
  error_ = context.workspace(tensor_bytes(dtype_, x.elements()));
  target_ = context.workspace(tensor_bytes(dtype_, x.elements()));
  gradient_ = context.workspace(tensor_bytes(dtype_, x.elements()));
  narrow_ = context.workspace(tensor_bytes(context.activations(), x.elements()));
  context.keep_input(0);
  context.keep_input(1);
  context.output({{2}, DType::kF64, {{2}}});
}

TensorView RelativeL2::error(RunContext& context, std::int64_t sample) const {
  return flat(in_workspace(context.workspace(error_), dtype_, {batch_, points_}).rows(sample, sample + 1));
}

TensorView RelativeL2::target(RunContext& context, std::int64_t sample) const {
  return flat(in_workspace(context.workspace(target_), dtype_, {batch_, points_}).rows(sample, sample + 1));
}

SampleSums& RelativeL2::sums_of(std::int64_t local_sample) {
  return sums_[first_sample_ + local_sample];
}

void RelativeL2::sum(RunContext& context) {
  const TensorView errors = in_workspace(context.workspace(error_), dtype_, {batch_ * points_}),
                   targets = in_workspace(context.workspace(target_), dtype_, {batch_ * points_});
  std::fill(sums_.begin(), sums_.end(), SampleSums());
  if (!errors.empty()) {
    elementwise_->convert(flat(context.input(0)), errors);
    elementwise_->convert(flat(context.input(1)), targets);
    elementwise_->subtract(errors, targets, errors);
  }
  for (std::int64_t sample = 0; sample < batch_ && points_ > 0; ++sample) {
    const TensorView e = error(context, sample), t = target(context, sample);
    sums_of(sample) = {reduce_->sum_of_squares(e), reduce_->sum_of_squares(t),
                       offset_ == 0 ? 0 : reduce_->sum(t), static_cast<double>(points_)};
  }
  if (all_parts_ == nullptr) return;
  const TensorView view{
      sums_.data(), {static_cast<std::int64_t>(sums_.size()), kSums}, DType::kF64, MemorySpace::kHost};
  all_parts_->forward(view, view);
}

void RelativeL2::forward(ForwardContext& context) {
  sum(context);
  double result[2] = {0, 0};
  for (const SampleSums& sums : sums_) {
    const RelativeError relative(sums, offset_, scale_);
    result[0] += relative.loss;
    result[1] += relative.counts ? 1 : 0;
  }
  device_->copy({result, {2}, DType::kF64, MemorySpace::kHost}, context.output(0));
  device_->synchronize();  // `result` ends with this call
}

void RelativeL2::backward(BackwardContext& context) {
  sum(context);  // also without points: the other ranks wait for this one
  for (int input = 0; input < 2; ++input) write_gradient(context, input);
}

void RelativeL2::write_gradient(BackwardContext& context, int input) {
  const GradientSink sink = context.input_gradient(input);
  if (sink.view.empty()) return;
  const TensorView gradient = in_workspace(context.workspace(gradient_), dtype_, {batch_, points_});
  for (std::int64_t sample = 0; sample < batch_; ++sample) {
    const TensorView out = flat(gradient.rows(sample, sample + 1));
    const RelativeError relative(sums_of(sample), offset_, scale_);
    elementwise_->fill(out, 0);
    if (!relative.counts) continue;
    const double s = std::abs(scale_), norm = relative.target_norm;
    // At x = t the norm has no gradient; 0 is one of its subgradients.
    if (relative.error_norm > 0)
      elementwise_->axpy((input == 0 ? 1 : -1) * seed() * s / (relative.error_norm * norm),
                         error(context, sample), out);
    if (input == 0) continue;
    const TensorView stands_for = target(context, sample), offset = error(context, sample);
    const double factor = -seed() * s * scale_ * relative.error_norm / (norm * norm * norm);
    elementwise_->axpy(factor * scale_, stands_for, out);
    elementwise_->fill(offset, offset_);
    elementwise_->axpy(factor, offset, out);
  }
  const TensorView narrow = in_workspace(context.workspace(narrow_), sink.view.dtype, {batch_ * points_});
  elementwise_->convert(flat(gradient), narrow);
  if (sink.accumulate) {
    elementwise_->axpy(1, narrow, flat(sink.view));
  } else {
    device_->copy(narrow, flat(sink.view));
  }
}

}  // namespace tenon::fno
