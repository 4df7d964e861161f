// The window of convolutions and pools over images [batch, channels, height, width], from their options.
#pragma once

#include "common.hpp"

#include <tenon/ops/convolution.hpp>

namespace tenon::nn {

/// The shape of input 0, which must be an image.
Shape expect_image(const InferContext& context);
/// Two extents from a list option of one number (both) or two (height, width).
void set_pair(const InferContext& context, const Options& options, std::string_view name,
              std::int64_t (&pair)[3]);
/// Window over x from the options kernel, stride (absent: kernel) and padding; refuses one that does not fit.
WindowSpec window_over(const InferContext& context, const Options& options, const Shape& x);
/// The same with the option dilation.
WindowSpec dilated_window_over(const InferContext& context, const Options& options, const Shape& x);
/// Shape of y where the window slides over images of these samples and channels.
Shape image_of(const WindowSpec& window, std::int64_t batch, std::int64_t channels);

}  // namespace tenon::nn
