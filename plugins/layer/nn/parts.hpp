// Layouts of inputs and outputs for layers of this plugin whose values may be sharded over a model grid. A
// layer that does not ask for this gets only whole values.
#pragma once

#include "common.hpp"

#include <tenon/sdk/gradient_sum.hpp>

#include <vector>

namespace tenon::nn {

/// The layout of input `index`; refuses a partial sum.
Layout expect_parts(const InferContext& context, int index);
/// Option `axes`: axes of the model grid, each once, over which input 0 in layout `x` is not sharded.
std::vector<int> free_axes(InferContext& context, const Options& options, const Layout& x);

/// `layout` with so many elements in dimension `dim`, sharded evenly over `axes` together; no axes: whole
/// there.
Layout with_even_parts(Layout layout, int dim, std::int64_t extent, const std::vector<int>& axes,
                       const ModelGrid& grid);

}  // namespace tenon::nn
