// Copies of boxes, and the layers made of them.
#include "box.hpp"

#include <fmt/format.h>
#include <tenon/parallel.hpp>
#include <tenon/transport.hpp>

#include <algorithm>
#include <cstring>

namespace tenon::fno {
namespace {

// In host memory, lines along the last dimension are one memcpy each.

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 16;

/// Place of the first element of line `line` of the box.
std::int64_t place(std::int64_t line, const Shape& box, const Shape& tensor) {
  std::int64_t result = 0, stride = tensor[tensor.rank() - 1];
  for (int d = box.rank() - 2; d >= 0; --d) {
    result += line % box[d] * stride;
    line /= box[d];
    stride *= tensor[d];
  }
  return result;
}

void copy_on_host(TensorView from, TensorView to, const Shape& box) {
  const std::int64_t elements = box.elements();
  if (elements == 0) return;
  const std::int64_t length = box[box.rank() - 1], bytes = dtype_bytes(from.dtype, length),
                     width = dtype_bytes(from.dtype, 1);
  const auto* source = static_cast<const std::byte*>(from.data);
  auto* target = static_cast<std::byte*>(to.data);
  parallel_for(elements / length, std::max<std::int64_t>(1, kBlockBytes / bytes),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t line = begin; line < end; ++line)
                   std::memcpy(target + place(line, box, to.shape) * width,
                               source + place(line, box, from.shape) * width, bytes);
               });
}

}  // namespace

void BoxCopier::infer(InferContext& context) {
  Device& device = context.device();
  elementwise_ = &device.family<Elementwise>();
  if (device.space() != MemorySpace::kHost) ops_ = &device.family<StridedCopyOps>();
}

void BoxCopier::copy(TensorView from, TensorView to, const Shape& box) {
  if (box.elements() == 0) return;
  if (ops_ == nullptr) {
    copy_on_host(from, to, box);
    return;
  }
  Box near{box, box};
  for (int d = 0; d < box.rank(); ++d) near.offset[d] = 0;
  ops_->copy(from, near, to, near);
}

void BoxCopier::add(TensorView gradient, const Shape& box, const GradientSink& sink, TensorView room) {
  if (sink.view.empty()) return;
  const TensorView whole = sink.accumulate ? in_workspace(room, sink.view.dtype, sink.view.shape) : sink.view;
  if (!(box == whole.shape)) elementwise_->fill(flat(whole), 0);
  copy(gradient, whole, box);
  if (sink.accumulate) elementwise_->axpy(1, flat(whole), flat(sink.view));
}

// Padding and cropping on the far sides: each is the other's adjoint.

void Margin::infer(InferContext& context) {
  Layout y = expect_field(context, 0);
  const Shape x = y.shape;
  const auto widths = options_.integers("widths");
  const std::size_t dims = points_of(x).size();
  if (widths.size() != 1 && widths.size() != dims)
    refuse(context, fmt::format("expected widths for {} dimension{} or one number for all, found {} for x {}",
                                dims, dims == 1 ? "" : "s", widths.size(), x.text()));
  for (std::size_t d = 0; d < dims; ++d) {
    const std::int64_t width = widths[widths.size() == 1 ? 0 : d];
    const int dim = static_cast<int>(d) + 2;
    y.shape[dim] += pads_ ? width : -width;
    if (y.shape[dim] < 1)
      refuse(context, fmt::format("dimension {} of x {} has {} points, found a width of {} to remove", dim,
                                  x.text(), x[dim], width));
  }
  // Points stay where they are: the last shard gets the pads, and the last shards lose what is cropped.
  for (DimSharding& sharding : y.sharding) {
    const std::int64_t extent = y.shape[sharding.dim];
    for (std::int64_t& offset : sharding.offsets) offset = std::min(offset, extent);
    sharding.offsets.back() = extent;
  }
  const ValueSpec part = placed(context, y);
  const Shape here = context.input(0).shape;
  box_ = pads_ ? here : part.shape;
  elementwise_ = &context.device().family<Elementwise>();
  boxes_.infer(context);
  room_ = context.workspace(tensor_bytes(context.activations(), here.elements()));
  context.output(part);
}

void Margin::forward(ForwardContext& context) {
  if (pads_ && !context.output(0).empty()) elementwise_->fill(flat(context.output(0)), 0);
  boxes_.copy(context.input(0), context.output(0), box_);
}

void Margin::backward(BackwardContext& context) {
  boxes_.add(context.output_gradient(0), box_, context.input_gradient(0), context.workspace(room_));
}

// Layer `coordinates`: x's channels, then the grid, the same for every sample.

void Coordinates::infer(InferContext& context) {
  const Layout layout = expect_field(context, 0);
  const Box part = part_of(layout, context.mesh().place());
  x_ = part.extents;
  const std::int64_t all = product(points_of(x_));
  std::int64_t inner = all;
  for (int dim = 2; dim < x_.rank() && all > 0; ++dim) {
    const std::int64_t n = x_[dim], whole = layout.shape[dim];
    inner /= n;
    for (std::int64_t p = 0; p < all; ++p)
      grid_.push_back(static_cast<double>(part.offset[dim] + p / inner % n) / static_cast<double>(whole));
  }
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  boxes_.infer(context);
  if (device_->space() != MemorySpace::kHost) grid_room_ = context.workspace(grid_.size() * sizeof(double));
  room_ = context.workspace(tensor_bytes(context.activations(), x_.elements()));
  context.output(placed(context, with_channels(layout, x_[1] + x_.rank() - 2)));
}

void Coordinates::forward(ForwardContext& context) {
  const TensorView y = context.output(0);
  boxes_.copy(context.input(0), y, x_);
  const auto count = static_cast<std::int64_t>(grid_.size());
  TensorView grid{grid_.data(), {count}, DType::kF64, MemorySpace::kHost};
  if (count > 0 && device_->space() != MemorySpace::kHost) {
    const TensorView there = in_workspace(context.workspace(grid_room_), DType::kF64, {count});
    device_->copy(grid, there);
    grid = there;
  }
  for (std::int64_t sample = 0; count > 0 && sample < x_[0]; ++sample) {
    const TensorView all = flat(y.rows(sample, sample + 1));
    elementwise_->convert(grid, all.rows(all.elements() - count, all.elements()));
  }
}

void Coordinates::backward(BackwardContext& context) {
  boxes_.add(context.output_gradient(0), x_, context.input_gradient(0), context.workspace(room_));
}

}  // namespace tenon::fno
