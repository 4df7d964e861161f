// Shapes, names, checks, layouts and small steps that several layers of this plugin share.
#pragma once

#include "layer_common/values.hpp"

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

using layer_common::columns_of;
using layer_common::flat;
using layer_common::free_axes;
using layer_common::matrix;
using layer_common::refuse;
using layer_common::rows_of;
using layer_common::statistics;
using layer_common::window;
using layer_common::window_bytes;

/// The shape with another last extent.
Shape with_columns(Shape shape, std::int64_t columns);

/// A matrix of normal initial values, decayed. Its name is the option `weight`, which ties it to another
/// layer's, or "<node>.weight".
ParameterSpec weight_parameter(const InferContext& context, const Options& options, const Shape& shape,
                               double init_scale);
/// A vector that no weight decay touches: "<node>.<member>".
ParameterSpec vector_parameter(const InferContext& context, std::string_view member, std::int64_t extent,
                               Initializer init);

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

/// `layout` with so many elements in dimension `dim`, sharded evenly over `axes` together; no axes: whole
/// there.
Layout with_even_parts(Layout layout, int dim, std::int64_t extent, const std::vector<int>& axes,
                       const Mesh& mesh);

}  // namespace tenon::nn
