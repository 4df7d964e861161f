// Makes a window that fits the image from options.
#include "window.hpp"

#include <fmt/format.h>

namespace tenon::nn {
namespace {

void check_fit(const InferContext& context, const WindowSpec& window, const Shape& x) {
  for (int d = 0; d < 2; ++d) {
    if (window.places(d) > 0) continue;
    refuse(context,
           fmt::format("a kernel of {} with dilation {} spans {} elements, more than the {} of x {} along {} "
                       "with padding {} on both sides; make the kernel smaller or the padding larger",
                       window.kernel[d], window.dilation[d], window.dilation[d] * (window.kernel[d] - 1) + 1,
                       window.extent[d], x.text(), d == 0 ? "height" : "width", window.pad_low[d]));
  }
}

WindowSpec undilated(const InferContext& context, const Options& options, const Shape& x) {
  WindowSpec window;
  window.extent[0] = x[2], window.extent[1] = x[3];
  set_pair(context, options, "kernel", window.kernel);
  set_pair(context, options, options.has("stride") ? "stride" : "kernel", window.stride);
  set_pair(context, options, "padding", window.pad_low);
  for (int d = 0; d < 2; ++d) window.pad_high[d] = window.pad_low[d];
  return window;
}

}  // namespace

Shape expect_image(const InferContext& context) {
  const Shape x = expect_activation(context, 0, 1);
  if (x.rank() != 4) refuse(context, "expected x [batch, channels, height, width], found shape " + x.text());
  return x;
}

void set_pair(const InferContext& context, const Options& options, std::string_view name,
              std::int64_t (&pair)[3]) {
  const auto values = options.integers(name);
  if (values.empty() || values.size() > 2) {
    refuse(context, fmt::format("option '{}' takes one number or [height, width], found {} numbers", name,
                                values.size()));
  }
  pair[0] = values.front(), pair[1] = values.back();
}

WindowSpec window_over(const InferContext& context, const Options& options, const Shape& x) {
  const WindowSpec window = undilated(context, options, x);
  check_fit(context, window, x);
  return window;
}

WindowSpec dilated_window_over(const InferContext& context, const Options& options, const Shape& x) {
  WindowSpec window = undilated(context, options, x);
  set_pair(context, options, "dilation", window.dilation);
  check_fit(context, window, x);
  return window;
}

Shape image_of(const WindowSpec& window, std::int64_t batch, std::int64_t channels) {
  return {batch, channels, window.places(0), window.places(1)};
}

}  // namespace tenon::nn
