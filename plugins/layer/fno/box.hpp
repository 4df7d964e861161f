// Copies of boxes between row-major tensors, for padding, cropping and additional channels. A device with
// memory of its own has operators for them.
#pragma once

#include "common.hpp"

#include <tenon/ops/copy.hpp>
#include <tenon/ops/elementwise.hpp>

namespace tenon::fno {

class BoxCopier {
 public:
  void infer(InferContext& context);
  /// Copies the elements with indices below `box` along every dimension from `from` to the same place in
  /// `to`. Elements of `to` outside stay as they are.
  void copy(TensorView from, TensorView to, const Shape& box);
  /// sink (+)= the box of `gradient`, zero outside; `room` is a workspace for a tensor of the sink's size.
  void add(TensorView gradient, const Shape& box, const GradientSink& sink, TensorView room);

 private:
  Elementwise* elementwise_ = nullptr;
  BoxOps* ops_ = nullptr;  ///< null where the device's memory is the host's
};

}  // namespace tenon::fno
