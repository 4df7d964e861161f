// Copies of boxes between row-major tensors of host memory: what padding, cropping and further channels are.
#pragma once

#include "common.hpp"

namespace tenon::fno {

/// The elements with indices below `box` along every dimension, of `from` to the same place in `to`. Elements
/// of `to` outside stay as they are.
void copy_box(TensorView from, TensorView to, const Shape& box);

/// sink (+)= the box of `gradient`, zero outside; `room` is a workspace for a tensor of the sink's size.
void add_box(Elementwise& elementwise, TensorView gradient, const Shape& box, const GradientSink& sink,
             TensorView room);

}  // namespace tenon::fno
