// Condition under which a library may compute a convolution from images, on all devices of this tree.
#pragma once

#include <tenon/ops/convolution.hpp>

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

}  // namespace tenon::device_arguments
