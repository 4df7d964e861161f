// Refusals, and the sum of gradients over ranks.
#include "common.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tenon::distdl {

void refuse(const InferContext& context, const std::string& what) {
  fail_config(fmt::format("layer '{}': {}", context.name(), what));
}

ValueSpec expect_one_activation(const InferContext& context) {
  if (context.inputs() != 1) refuse(context, fmt::format("expected one input, found {}", context.inputs()));
  ValueSpec x = context.input(0);
  if (x.dtype != context.activations()) {
    refuse(context, fmt::format("expected x in the activations' number format {}, found {}",
                                dtype_name(context.activations()), dtype_name(x.dtype)));
  }
  if (!x.layout.partial.empty())
    refuse(context,
           "x is a sum over ranks (" + layout_text(x.layout) + "); put a repartition before the layer");
  return x;
}

GradientSum::GradientSum(InferContext& context, const Shape& shape, std::vector<int> axes) : shape_(shape) {
  const ModelGrid& grid = context.grid();
  std::erase_if(axes, [&](int axis) { return grid.extent(axis) == 1; });
  if (axes.empty()) return;
  first_ = std::all_of(axes.begin(), axes.end(), [&](int axis) { return grid.coordinate(axis) == 0; });
  const Layout terms{shape, {}, axes}, whole{shape};
  sum_ = make_map(context.grid(), "all_reduce", {.from = terms, .to = whole, .dtype = context.parameters()},
                  fmt::format("layer '{}': the sum of its gradients", context.name()));
}

void GradientSum::open(const GradientSink& sink) const {
  if (!first_ || !sink.accumulate)
    std::memset(sink.view.data, 0, static_cast<std::size_t>(sink.view.bytes()));
}

void GradientSum::close(const GradientSink& sink) {
  if (sum_ == nullptr) return;
  const TensorView gradient = sink.view.reshaped(shape_);
  sum_->forward(gradient, gradient);
}

}  // namespace tenon::distdl
