// A gradient's terms over axes of the model grid, added up in place.
#include <tenon/gradient_sum.hpp>

#include <algorithm>

TENON_ABI_BEGIN

std::vector<int> cut_axes(const Layout& layout) {
  std::vector<int> axes;
  for (const DimSharding& cut : layout.sharding) axes.insert(axes.end(), cut.axes.begin(), cut.axes.end());
  return axes;
}

GradientSum::GradientSum(ModelGrid& grid, const Layout& parameter, std::vector<int> axes, DType dtype,
                         const std::string& what) {
  std::erase_if(axes, [&](int axis) { return grid.extent(axis) == 1; });
  if (axes.empty()) return;
  first_ = std::all_of(axes.begin(), axes.end(), [&](int axis) { return grid.coordinate(axis) == 0; });
  const Layout terms{parameter.shape, parameter.sharding, axes};
  sum_ = redistribution(grid, {.from = terms, .to = parameter, .dtype = dtype}, what);
}

void GradientSum::close(const GradientSink& sink) {
  if (sum_ == nullptr) return;
  const TensorView gradient = sink.view.reshaped(sum_->local_range());
  sum_->forward(gradient, gradient);
}

TENON_ABI_END
