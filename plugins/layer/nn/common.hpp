// Shapes, names, checks, layouts and small steps that several layers of this plugin share.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/layer.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/gradient_sum.hpp>
#include <tenon/stepwise.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::nn {

/// A value seen as a matrix: the last extent is the columns, all others together are the rows.
std::int64_t rows_of(const Shape& shape);
std::int64_t columns_of(const Shape& shape);
TensorView matrix(TensorView view);
TensorView flat(TensorView view);
/// The shape with another last extent.
Shape with_columns(Shape shape, std::int64_t columns);
/// A tensor inside the bytes of a workspace.
TensorView window(TensorView bytes, std::size_t offset, DType dtype, const Shape& shape);
/// Bytes of a tensor inside a workspace, rounded up so that the next tensor is aligned.
std::size_t window_bytes(DType dtype, std::int64_t elements);

/// dtype of statistics, logits and losses: f32, or f64 for f64 activations.
DType statistics(DType activations);

/// A matrix of normal initial values, decayed. Its name is the option `weight`, which ties it to another
/// layer's, or "<node>.weight".
ParameterSpec weight_parameter(const InferContext& context, const Options& options, const Shape& shape,
                               double init_scale);
/// A vector that no weight decay touches: "<node>.<member>".
ParameterSpec vector_parameter(const InferContext& context, std::string_view member, std::int64_t extent,
                               Initializer init);

/// Throws Error(kConfig): "layer 'h.0.mlp.c_fc': <what>".
[[noreturn]] void refuse(const InferContext& context, const std::string& what);

/// sink (+)= gradient: the backward of a layer whose derivative is one. Writes nothing to an empty sink.
void pass_on(Device& device, Elementwise& elementwise, TensorView gradient, const GradientSink& sink);

// Stepwise graphs. Positions are counted along dimension 1 of all values.

/// Answer to a query of a layer that, if `it_is`, computes each position by itself.
inline void* positionwise(PositionwiseLayer* layer, std::string_view interface_id, bool it_is = true) {
  return it_is && interface_id == PositionwiseLayer::kId ? layer : nullptr;
}
/// Whether a layer that computes each row of a matrix by itself computes each position of `x` by itself.
bool rows_are_positions(const Shape& x);

// Layouts of inputs and outputs for layers of this plugin whose values may be sharded over a mesh. A
// layer that does not ask for this gets only unsharded values.

/// The layout of input `index`; refuses a partial sum.
Layout expect_parts(const InferContext& context, int index);
/// Refuses two layouts of different shape, or that are not sharded alike.
void expect_alike(const InferContext& context, const Layout& a, const Layout& b);
/// Option `axes`: axes of the mesh, each once, over which input 0 in layout `x` is not sharded.
std::vector<int> free_axes(InferContext& context, const Options& options, const Layout& x);

/// `layout` with so many elements in dimension `dim`, sharded evenly over `axes` together; no axes: whole
/// there.
Layout with_even_parts(Layout layout, int dim, std::int64_t extent, const std::vector<int>& axes,
                       const Mesh& mesh);

}  // namespace tenon::nn
