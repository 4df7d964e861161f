// Layer `flatten`: a copy under another shape.
#include "flatten.hpp"

namespace tenon::nn {
namespace {

std::int64_t product(const Shape& shape, int begin, int end) {
  std::int64_t result = 1;
  for (int dim = begin; dim < end; ++dim) result *= shape[dim];
  return result;
}

Layout flattened(const InferContext& context, const Layout& x) {
  const int rank = x.shape.rank();
  Layout y{{x.shape[0], product(x.shape, 1, rank)}};
  for (const DimSharding& cut : x.sharding) {
    if (cut.dim == 0) {
      y.sharding.push_back(cut);
      continue;
    }
    if (product(x.shape, 1, cut.dim) != 1 || cut_of(y, 1) != nullptr) {
      refuse(context, "parts of a sample must be runs of its elements, found " + layout_text(x) +
                          "; put a repartition before the layer that cuts dimension 0, or dimension 1 alone");
    }
    DimSharding columns{1, cut.axes, cut.offsets};
    for (std::int64_t& offset : columns.offsets) offset *= product(x.shape, cut.dim + 1, rank);
    y.sharding.push_back(columns);
  }
  return y;
}

}  // namespace

void Flatten::infer(InferContext& context) {
  expect_inputs(context, 1);
  expect_activation(context, 0, 1);
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  context.output(placed(context, flattened(context, expect_parts(context, 0))));
}

void Flatten::forward(ForwardContext& context) {
  device_->copy(flat(context.input(0)), flat(context.output(0)));
}

void Flatten::backward(BackwardContext& context) {
  pass_on(*device_, *elementwise_, context.output_gradient(0), context.input_gradient(0));
}

}  // namespace tenon::nn
