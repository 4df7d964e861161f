// Shapes, names, checks, layouts and small steps of this plugin's layers.
#include "common.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::nn {
Shape with_columns(Shape shape, std::int64_t columns) {
  shape[shape.rank() - 1] = columns;
  return shape;
}

ParameterSpec weight_parameter(const InferContext& context, const Options& options, const Shape& shape,
                               double init_scale) {
  ParameterSpec spec;
  spec.name =
      options.has("weight") ? std::string(options.text("weight")) : fmt::format("{}.weight", context.name());
  spec.dtype = context.parameters();
  spec.shape = shape;
  spec.init_scale = init_scale;
  return spec;
}

ParameterSpec vector_parameter(const InferContext& context, std::string_view member, std::int64_t extent,
                               Initializer init) {
  ParameterSpec spec;
  spec.name = fmt::format("{}.{}", context.name(), member);
  spec.dtype = context.parameters();
  spec.shape = {extent};
  spec.decay = false;
  spec.init = init;
  return spec;
}

void pass_on(Device& device, Elementwise& elementwise, TensorView gradient, const GradientSink& sink) {
  if (sink.view.empty() || sink.view.data == gradient.data) return;
  if (sink.accumulate) {
    elementwise.axpy(1.0, flat(gradient), flat(sink.view));
  } else {
    device.copy(flat(gradient), flat(sink.view));
  }
}

bool rows_are_positions(const Shape& x) {
  return x.rank() > 2;  // a row of [batch, time] is a sample
}

// Layouts of shards. Refusals name global shapes, so that they read the same on all ranks.

Layout expect_parts(const InferContext& context, int index) {
  const Layout layout = context.input(index).layout;
  if (!layout.partial.empty()) {
    refuse(context, fmt::format("input {} is a sum over ranks ({}); put a repartition before the layer",
                                index, layout_text(layout)));
  }
  return layout;
}

void expect_alike(const InferContext& context, const Layout& a, const Layout& b) {
  if (!(a.shape == b.shape))
    refuse(context, "expected two inputs of equal shape, found " + a.shape.text() + " and " + b.shape.text());
  if (!(a == b)) {
    refuse(context, "the inputs must be sharded alike over the mesh, found " + layout_text(a) + ", and " +
                        layout_text(b) + "; put a repartition before one");
  }
}

Layout with_even_parts(Layout layout, int dim, std::int64_t extent, const std::vector<int>& axes,
                       const Mesh& mesh) {
  std::erase_if(layout.sharding, [dim](const DimSharding& sharding) { return sharding.dim == dim; });
  layout.shape[dim] = extent;
  if (axes.empty()) return layout;
  int parts = 1;
  for (const int axis : axes) parts *= mesh.extent(axis);
  layout.sharding.push_back({dim, axes, balanced_offsets(extent, parts)});
  return layout;
}

}  // namespace tenon::nn
