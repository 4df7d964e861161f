// Padding and cropping on the far sides: each is the other's adjoint.
#include "margin.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::fno {

void Margin::infer(InferContext& context) {
  expect_inputs(context, 1);
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
  for (DimSharding& cut : y.sharding) {
    const std::int64_t extent = y.shape[cut.dim];
    for (std::int64_t& offset : cut.offsets) offset = std::min(offset, extent);
    cut.offsets.back() = extent;
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

}  // namespace tenon::fno
