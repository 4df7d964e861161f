// Layer `coordinates`: x's channels, then the grid, the same for every sample.
#include "coordinates.hpp"

#include <tenon/transport.hpp>

namespace tenon::fno {

void Coordinates::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Layout layout = expect_field(context, 0);
  const Box part = part_of(layout, context.grid().place());
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
