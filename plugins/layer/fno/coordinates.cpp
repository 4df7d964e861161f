// Layer `coordinates`: x's channels, then the grid, the same for every sample.
#include "coordinates.hpp"

#include "box.hpp"

namespace tenon::fno {

void Coordinates::infer(InferContext& context) {
  expect_inputs(context, 1);
  x_ = expect_field(context, 0);
  const auto points = points_of(x_);
  const auto dims = static_cast<std::int64_t>(points.size()), all = product(points);
  std::int64_t inner = all;
  for (const std::int64_t n : points) {
    inner /= n;
    for (std::int64_t p = 0; p < all; ++p)
      grid_.push_back(static_cast<double>(p / inner % n) / static_cast<double>(n));
  }
  elementwise_ = &context.device().family<Elementwise>();
  room_ = context.workspace(tensor_bytes(context.activations(), x_.elements()));
  context.output({field(x_[0], x_[1] + dims, points), context.activations()});
}

void Coordinates::forward(ForwardContext& context) {
  const TensorView y = context.output(0);
  copy_box(context.input(0), y, x_);
  const auto count = static_cast<std::int64_t>(grid_.size());
  const TensorView grid{grid_.data(), {count}, DType::kF64, MemorySpace::kHost};
  for (std::int64_t sample = 0; sample < x_[0]; ++sample) {
    const TensorView all = flat(y.rows(sample, sample + 1));
    elementwise_->convert(grid, all.rows(all.elements() - count, all.elements()));
  }
}

void Coordinates::backward(BackwardContext& context) {
  add_box(*elementwise_, context.output_gradient(0), x_, context.input_gradient(0), context.workspace(room_));
}

}  // namespace tenon::fno
