// Convolutions from images by a library (family Convolutions), on all devices of this tree: the condition
// under which it may compute one, the check of a spec, and the tensors of a call as pointers. In f32. Does
// not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/ops/convolution.hpp>

#include <string>

namespace tenon::device_arguments {

/// Windows that slide within zero padding, over a tensor that is not empty. Others crop, or have nothing to
/// add.
inline bool is_ordinary(const ConvolutionSpec& spec) {
  const WindowSpec& window = spec.window;
  if (spec.batch < 1 || spec.channels < 1 || spec.features < 1 || window.places() < 1) return false;
  for (int d = 0; d < window.spatial; ++d)
    if (window.pad_low[d] < 0 || window.pad_high[d] < 0) return false;
  return true;
}

inline void check_convolution(const ConvolutionSpec& spec) {
  if (spec.window.spatial < 1 || spec.window.spatial > 3)
    refuse_config("convolutions have 1 to 3 dimensions, found " + std::to_string(spec.window.spatial));
}

/// x, w, y or their gradients; null for those that a pass does not take.
struct ConvolutionTensors {
  float *x = nullptr, *w = nullptr, *y = nullptr, *bias = nullptr;
};

/// Checks the tensors of the passes of one convolution.
class ConvolutionShape {
 public:
  explicit ConvolutionShape(const ConvolutionSpec& spec)
      : x_elements_(spec.batch * spec.channels * spec.window.elements()),
        w_elements_(spec.features * spec.channels * spec.window.offsets()),
        y_elements_(spec.batch * spec.features * spec.window.places()),
        bias_elements_(spec.bias ? spec.features : 0) {}

  std::int64_t y_elements() const { return y_elements_; }

  ConvolutionTensors forward(const TensorView& x, const TensorView& w, const TensorView& bias,
                             const TensorView& y) const {
    constexpr const char* kWhere = kForward;
    ConvolutionTensors of;
    of.y = checked<float>(y, y_elements_, kWhere, "y");
    if (bias_elements_ > 0) of.bias = checked<float>(bias, bias_elements_, kWhere, "bias");
    of.x = checked<float>(x, x_elements_, kWhere, "x");
    of.w = checked<float>(w, w_elements_, kWhere, "w");
    return of;
  }
  ConvolutionTensors backward_input(const TensorView& w, const TensorView& dy, const TensorView& dx) const {
    constexpr const char* kWhere = kBackwardInput;
    ConvolutionTensors of;
    of.w = checked<float>(w, w_elements_, kWhere, "w");
    of.y = checked<float>(dy, y_elements_, kWhere, "dy");
    of.x = checked<float>(dx, x_elements_, kWhere, "dx");
    return of;
  }
  ConvolutionTensors backward_weight(const TensorView& x, const TensorView& dy, const TensorView& dw) const {
    constexpr const char* kWhere = kBackwardWeight;
    ConvolutionTensors of;
    of.x = checked<float>(x, x_elements_, kWhere, "x");
    of.y = checked<float>(dy, y_elements_, kWhere, "dy");
    of.w = checked<float>(dw, w_elements_, kWhere, "dw");
    return of;
  }

  static constexpr const char* kForward = "convolution";
  static constexpr const char* kBackwardInput = "convolution, backward to x";
  static constexpr const char* kBackwardWeight = "convolution, backward to w";

 private:
  std::int64_t x_elements_, w_elements_, y_elements_, bias_elements_;
};

/// A pass's scratch, at a multiple of `alignment`. `needed` includes the room to align it; null where it is
/// 0.
inline std::byte* convolution_room(const TensorView& scratch, std::size_t needed, std::size_t alignment,
                                   const char* where) {
  if (needed == 0) return nullptr;
  if (!holds_scratch(scratch, needed)) {
    refuse(where, "scratch must have " + std::to_string(needed) + " bytes, found " +
                      std::to_string(scratch.bytes()));
  }
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(scratch.data) % alignment;
  return scratch.as<std::byte>() + (beyond == 0 ? 0 : alignment - beyond);
}

}  // namespace tenon::device_arguments
