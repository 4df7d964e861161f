// A gradient's terms over axes of the mesh, added up in place.
#include <tenon/sdk/gradient_sum.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <vector>

TENON_ABI_BEGIN

GradientSum::GradientSum(InferContext& context, const ParameterSpec& parameter, const Layout& value) {
  if (!context.training()) return;
  Mesh& mesh = context.mesh();
  std::vector<int> axes = sharded_axes(value);
  std::erase_if(axes, [&](int axis) { return mesh.extent(axis) == 1 || is_sharded(parameter, axis); });
  if (axes.empty()) return;
  first_ = std::all_of(axes.begin(), axes.end(), [&](int axis) { return mesh.coordinate(axis) == 0; });
  const Layout whole{parameter.shape, parameter.sharding}, terms{parameter.shape, parameter.sharding, axes};
  sum_ = redistribution(
      mesh, {.from = terms, .to = whole, .dtype = parameter.dtype, .device = &context.device()},
      fmt::format("layer '{}': the sum of the gradients of '{}'", context.name(), parameter.name));
}

void GradientSum::clear(Elementwise& elementwise, const GradientSink& sink) const {
  if (!sink.view.empty() && !adds(sink)) elementwise.fill(sink.view.reshaped({sink.view.elements()}), 0);
}

void GradientSum::close(const GradientSink& sink) {
  if (sum_ == nullptr) return;
  const TensorView gradient = sink.view.reshaped(sum_->local_range());
  sum_->forward(gradient, gradient);
}

TENON_ABI_END
