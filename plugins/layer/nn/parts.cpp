// Layouts of shards. Refusals name global shapes, so that they read the same on all ranks.
#include "parts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::nn {

Layout expect_parts(const InferContext& context, int index) {
  const Layout layout = context.input(index).layout;
  if (!layout.partial.empty()) {
    refuse(context, fmt::format("input {} is a sum over ranks ({}); put a repartition before the layer",
                                index, layout_text(layout)));
  }
  return layout;
}

std::vector<int> free_axes(InferContext& context, const Options& options, const Layout& x) {
  const ModelGrid& grid = context.grid();
  const std::vector<int> taken = cut_axes(x);
  std::vector<int> axes;
  for (const std::int64_t wanted : options.integers("axes")) {
    if (wanted >= grid.axes()) {
      refuse(context, fmt::format("option 'axes' names axis {} of the model grid, but parallel.grid has {} "
                                  "axes",
                                  wanted, grid.axes()));
    }
    const auto axis = static_cast<int>(wanted);
    const auto has = [axis](const std::vector<int>& list) {
      return std::find(list.begin(), list.end(), axis) != list.end();
    };
    if (has(axes)) refuse(context, fmt::format("option 'axes' names axis {} twice", axis));
    if (has(taken)) {
      refuse(context, fmt::format("axis {} of option 'axes' cuts input 0 already ({}); name another axis, or "
                                  "put a repartition before the layer that leaves axis {} to copies",
                                  axis, layout_text(x), axis));
    }
    axes.push_back(axis);
  }
  return axes;
}

Layout with_even_parts(Layout layout, int dim, std::int64_t extent, const std::vector<int>& axes,
                       const ModelGrid& grid) {
  std::erase_if(layout.sharding, [dim](const DimSharding& cut) { return cut.dim == dim; });
  layout.shape[dim] = extent;
  if (axes.empty()) return layout;
  int parts = 1;
  for (const int axis : axes) parts *= grid.extent(axis);
  layout.sharding.push_back({dim, axes, balanced_offsets(extent, parts)});
  return layout;
}

}  // namespace tenon::nn
