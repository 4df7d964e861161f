// Two maps: of the value from the old layout to the new one, of the gradient back. The gradient of a partial
// sum is replicated over the axes of the sum, so the backward map is a map of its own and not an adjoint.
#include "repartition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tenon::distdl {
Repartition::Repartition(const Options& options) {
  const auto dims = options.integers("dims"), axes = options.integers("axes"),
             sizes = options.integers("sizes");
  for (const std::int64_t dim : dims) dims_.push_back(static_cast<int>(dim));
  for (const std::int64_t axis : axes) axes_.push_back(static_cast<int>(axis));
  sizes_.assign(sizes.begin(), sizes.end());
}

Layout Repartition::wanted(const InferContext& context, const Shape& shape, const Mesh& mesh) const {
  if (dims_.size() != axes_.size()) {
    refuse(context,
           fmt::format("dims and axes must be equally long, found {} and {}", dims_.size(), axes_.size()));
  }
  Layout layout{shape};
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    if (dims_[i] >= shape.rank())
      refuse(context,
             fmt::format("dimension {} is to be sharded, but the value is {}", dims_[i], shape.text()));
    if (axes_[i] >= mesh.axes()) {
      refuse(context,
             fmt::format("axis {} of the mesh is to shard dimension {}, but parallel.grid has {} axes",
                         axes_[i], dims_[i], mesh.axes()));
    }
    auto sharding = std::find_if(layout.sharding.begin(), layout.sharding.end(),
                                 [&](const DimSharding& one) { return one.dim == dims_[i]; });
    if (sharding == layout.sharding.end()) sharding = layout.sharding.insert(sharding, {dims_[i], {}, {}});
    sharding->axes.push_back(axes_[i]);
  }
  for (DimSharding& sharding : layout.sharding) {
    const int parts = std::accumulate(sharding.axes.begin(), sharding.axes.end(), 1,
                                      [&](int product, int axis) { return product * mesh.extent(axis); });
    sharding.offsets = balanced_offsets(shape[sharding.dim], parts);
    if (sizes_.empty()) continue;
    if (layout.sharding.size() > 1) refuse(context, "sizes needs one dimension to shard");
    sharding.offsets.assign(1, 0);
    for (const std::int64_t size : sizes_) sharding.offsets.push_back(sharding.offsets.back() + size);
    if (static_cast<int>(sizes_.size()) != parts || sharding.offsets.back() != shape[sharding.dim]) {
      refuse(context, fmt::format("sizes must be {} numbers that add up to {}, found {} that add up to {}",
                                  parts, shape[sharding.dim], sizes_.size(), sharding.offsets.back()));
    }
  }
  return layout;
}

void Repartition::infer(InferContext& context) {
  const ValueSpec x = context.input(0);
  Mesh& mesh = context.mesh();
  const Layout to = wanted(context, x.layout.shape, mesh);
  Layout back = x.layout;
  back.partial.clear();
  const std::string what = fmt::format("layer '{}'", context.name());
  Device* const device = &context.device();
  value_ = redistribution(mesh, {.from = x.layout, .to = to, .dtype = x.dtype, .device = device}, what);
  if (context.training())
    gradient_ = redistribution(mesh, {.from = to, .to = back, .dtype = x.dtype, .device = device}, what);
  context.output({part_of(to, mesh.place()).extents, x.dtype, to});
}

void Repartition::forward(ForwardContext& context) {
  value_->forward(context.input(0), context.output(0));
}

void Repartition::backward(BackwardContext& context) {
  // A gradient that no layer needs has no shape; one of an empty shard has, and its rank still sends.
  const GradientSink dx = context.input_gradient(0);
  const TensorView dy = context.output_gradient(0);
  if (dx.view.shape.rank() == 0 || dy.shape.rank() == 0) return;
  gradient_->forward(dy, dx.view, dx.accumulate);
}

}  // namespace tenon::distdl
