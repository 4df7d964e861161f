// Shapes, names, checks, layouts and small steps of this plugin's layers.
#include "common.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::nn {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

std::int64_t columns_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
}

std::int64_t rows_of(const Shape& shape) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}

TensorView matrix(TensorView view) {
  return view.reshaped({rows_of(view.shape), columns_of(view.shape)});
}

TensorView flat(TensorView view) {
  return view.reshaped({view.elements()});
}

Shape with_columns(Shape shape, std::int64_t columns) {
  shape[shape.rank() - 1] = columns;
  return shape;
}

TensorView window(TensorView bytes, std::size_t offset, DType dtype, const Shape& shape) {
  return {static_cast<std::byte*>(bytes.data) + offset, shape, dtype, bytes.space};
}

std::size_t window_bytes(DType dtype, std::int64_t elements) {
  return (static_cast<std::size_t>(dtype_bytes(dtype, elements)) + kAlignment - 1) / kAlignment * kAlignment;
}

DType statistics(DType activations) {
  return activations == DType::kF64 ? DType::kF64 : DType::kF32;
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

void refuse(const InferContext& context, const std::string& what) {
  fail_config(fmt::format("layer '{}': {}", context.name(), what));
}

void pass_on(Device& device, Elementwise& elementwise, TensorView gradient, const GradientSink& sink) {
  if (sink.view.empty()) return;
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

std::vector<int> free_axes(InferContext& context, const Options& options, const Layout& x) {
  const Mesh& mesh = context.mesh();
  const std::vector<int> taken = sharded_axes(x);
  std::vector<int> axes;
  for (const std::int64_t wanted : options.integers("axes")) {
    if (wanted >= mesh.axes()) {
      refuse(context, fmt::format("option 'axes' names axis {} of the mesh, but parallel.grid has {} "
                                  "axes",
                                  wanted, mesh.axes()));
    }
    const auto axis = static_cast<int>(wanted);
    const auto has = [axis](const std::vector<int>& list) {
      return std::find(list.begin(), list.end(), axis) != list.end();
    };
    if (has(axes)) refuse(context, fmt::format("option 'axes' names axis {} twice", axis));
    if (has(taken)) {
      refuse(context, fmt::format("axis {} of option 'axes' shards input 0 already ({}); name another axis, "
                                  "or put a repartition before the layer that leaves axis {} to copies",
                                  axis, layout_text(x), axis));
    }
    axes.push_back(axis);
  }
  return axes;
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
