// Padding and cropping on the far sides: each is the other's adjoint.
#include "margin.hpp"

#include "box.hpp"

#include <fmt/format.h>

namespace tenon::fno {

void Margin::infer(InferContext& context) {
  expect_inputs(context, 1);
  const Shape x = expect_field(context, 0);
  const auto widths = options_.integers("widths");
  const std::size_t dims = points_of(x).size();
  if (widths.size() != 1 && widths.size() != dims)
    refuse(context, fmt::format("expected widths for {} dimension{} or one number for all, found {} for x {}",
                                dims, dims == 1 ? "" : "s", widths.size(), x.text()));
  Shape y = x;
  for (std::size_t d = 0; d < dims; ++d) {
    const std::int64_t width = widths[widths.size() == 1 ? 0 : d];
    const int dim = static_cast<int>(d) + 2;
    y[dim] += pads_ ? width : -width;
    if (y[dim] < 1)
      refuse(context, fmt::format("dimension {} of x {} has {} points, found a width of {} to remove", dim,
                                  x.text(), x[dim], width));
  }
  box_ = pads_ ? x : y;
  elementwise_ = &context.device().family<Elementwise>();
  room_ = context.workspace(tensor_bytes(context.activations(), x.elements()));
  context.output({y, context.activations()});
}

void Margin::forward(ForwardContext& context) {
  if (pads_) elementwise_->fill(flat(context.output(0)), 0);
  copy_box(context.input(0), context.output(0), box_);
}

void Margin::backward(BackwardContext& context) {
  add_box(*elementwise_, context.output_gradient(0), box_, context.input_gradient(0),
          context.workspace(room_));
}

}  // namespace tenon::fno
