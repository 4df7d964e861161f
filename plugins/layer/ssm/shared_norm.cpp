// Gated norm over groups that several ranks share.
#include "shared_norm.hpp"

#include "layer_common/values.hpp"

#include <cstring>

namespace tenon::ssm {

using layer_common::flat;
using layer_common::statistics;
using layer_common::window;
using layer_common::window_bytes;
namespace {

Box columns_at(const Shape& shape, std::int64_t first) {
  return {{0, first}, shape};
}

/// Calls body(line of whole, line of part, bytes) for every row.
template <typename Body>
void each_line(TensorView whole, std::int64_t first, TensorView part, Body body) {
  const std::int64_t line = dtype_bytes(whole.dtype, whole.shape[1]),
                     bytes = dtype_bytes(part.dtype, part.shape[1]);
  std::byte* const begin = whole.as<std::byte>() + dtype_bytes(whole.dtype, first);
  for (std::int64_t r = 0; r < part.shape[0]; ++r)
    body(begin + r * line, part.as<std::byte>() + r * bytes, static_cast<std::size_t>(bytes));
}

}  // namespace

ColumnCopy::ColumnCopy(Device& device)
    : boxes_(device.space() == MemorySpace::kHost ? nullptr : &device.family<StridedCopyOps>()) {}

void ColumnCopy::take(TensorView whole, std::int64_t first, TensorView part) const {
  if (boxes_ != nullptr)
    return boxes_->copy(whole, columns_at(part.shape, first), part, columns_at(part.shape, 0));
  each_line(whole, first, part,
            [](const std::byte* from, std::byte* to, std::size_t bytes) { std::memcpy(to, from, bytes); });
}

void ColumnCopy::put(TensorView part, TensorView whole, std::int64_t first) const {
  if (boxes_ != nullptr)
    return boxes_->copy(part, columns_at(part.shape, 0), whole, columns_at(part.shape, first));
  each_line(whole, first, part,
            [](std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); });
}

SharedNorm::SharedNorm(InferContext& context, const Layout& x, const HeadShare& share, const HeadSizes& sizes,
                       double eps)
    : width_(share.columns()),
      first_(share.gates().front().first),
      groups_(share.groups_of_shard()),
      group_(share.group()),
      dtype_(context.activations()),
      copy_(context.device()),
      device_(&context.device()) {
  const Shape here = context.input(0).shape;
  rows_ = here[0] * here[1];
  spec_ = {
      .count = static_cast<double>(sizes.per_group() * sizes.head_width), .eps = eps, .gain_per_set = false};
  parts_ = &device_->family<PartNormOps>();
  norms_ = &device_->family<NormalisationOps>();
  nn_ = &device_->family<NeuralOps>();
  multiply_ = &device_->family<MultiplyOps>();
  elementwise_ = &device_->family<Elementwise>();
  // A rank has terms of its own group alone, and zeros for the other groups of its shard.
  Layout whole{{sizes.groups, x.shape[0], x.shape[1]}};
  if (!share.group_axes().empty()) {
    int group_parts = 1;
    for (const int axis : share.group_axes()) group_parts *= context.mesh().extent(axis);
    whole.sharding.push_back({0, share.group_axes(), balanced_offsets(sizes.groups, group_parts)});
  }
  if (const DimSharding* samples = sharding_of(x, 0))
    whole.sharding.push_back({1, samples->axes, samples->offsets});
  Layout terms = whole;
  for (const int axis : share.other_axes())
    if (context.mesh().extent(axis) > 1) terms.partial.push_back(axis);
  total_ =
      redistribution(context.mesh(), {.from = terms, .to = whole, .dtype = DType::kF64, .device = device_},
                     fmt::format("layer '{}': the sums of its norm", context.name()));
  rstd_ = context.saved({{rows_}, statistics(dtype_)});
  spare_ = context.workspace(4 * window_bytes(dtype_, rows_ * width_));
  sums_ = context.workspace(window_bytes(DType::kF64, (2 + groups_) * rows_));
}

TensorView SharedNorm::spare(RunContext& context, int number) const {
  return window(context.workspace(spare_), number * window_bytes(dtype_, rows_ * width_), dtype_,
                {rows_, width_});
}

void SharedNorm::gate(RunContext& context, TensorView y, TensorView projected) {
  const TensorView z = spare(context, 0), mapped = spare(context, 1), v = spare(context, 2);
  copy_.take(projected, first_, z);
  nn_->activation(Epilogue::kSilu, flat(z), flat(mapped));
  multiply_->multiply(flat(y), flat(mapped), flat(v), false);
}

void SharedNorm::add_up(RunContext& context, TensorView numbers) {
  const TensorView grid =
      window(context.workspace(sums_), 2 * rows_ * sizeof(double), DType::kF64, {groups_, rows_});
  if (rows_ > 0) {
    elementwise_->fill(flat(grid), 0);
    device_->copy(numbers, flat(grid.rows(group_, group_ + 1)));
  }
  const TensorView terms = grid.reshaped(total_->local_range());
  total_->forward(terms, terms);
  if (rows_ > 0) device_->copy(flat(grid.rows(group_, group_ + 1)), numbers);
}

void SharedNorm::forward(ForwardContext& context, TensorView y, TensorView projected, TensorView weight,
                         TensorView out) {
  const TensorView squares = window(context.workspace(sums_), 0, DType::kF64, {rows_});
  const TensorView v = spare(context, 2).reshaped({1, rows_, width_});
  if (rows_ > 0) {
    gate(context, y, projected);
    parts_->squares(spec_, v, {}, squares);
  }
  add_up(context, squares);
  if (rows_ == 0) return;
  parts_->statistics(spec_, {}, squares, {}, context.saved(rstd_), {}, {});
  parts_->normalise(spec_, v, weight, {}, {}, context.saved(rstd_), out.reshaped(v.shape));
}

void SharedNorm::repeat(BackwardContext& context, TensorView y, TensorView projected, TensorView weight,
                        TensorView out) {
  if (rows_ == 0) return;
  gate(context, y, projected);
  const TensorView v = spare(context, 2).reshaped({1, rows_, width_});
  parts_->normalise(spec_, v, weight, {}, {}, context.saved(rstd_), out.reshaped(v.shape));
}

void SharedNorm::backward(BackwardContext& context, TensorView y, TensorView projected, TensorView weight,
                          TensorView dout, TensorView dy, TensorView dprojected, TensorView dweight,
                          bool accumulate) {
  const TensorView sums = window(context.workspace(sums_), 0, DType::kF64, {2, rows_});
  const TensorView z = spare(context, 0), mapped = spare(context, 1), v = spare(context, 2),
                   dv = spare(context, 3), rstd = context.saved(rstd_);
  const Shape sets{1, rows_, width_};
  if (rows_ > 0) {
    gate(context, y, projected);
    parts_->backward_sums(spec_, v.reshaped(sets), weight, {}, rstd, dout.reshaped(sets), sums);
  }
  add_up(context, flat(sums.rows(1, 2)));
  if (rows_ == 0) return;
  if (!dweight.empty()) norms_->rms_norm_backward(v, weight, rstd, dout, {}, false, dweight, accumulate);
  parts_->backward(spec_, v.reshaped(sets), weight, {}, rstd, dout.reshaped(sets), sums, dv.reshaped(sets),
                   false);
  // v is not read any more: its place takes the gradient of silu(z).
  multiply_->multiply(flat(dv), flat(y), flat(v), false);
  multiply_->multiply(flat(dv), flat(mapped), flat(dy), false);
  nn_->activation_backward(Epilogue::kSilu, flat(z), flat(v), flat(dv), false);
  copy_.put(dv, dprojected, first_);
}

}  // namespace tenon::ssm
