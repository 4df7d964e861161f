#include "window_checks.hpp"

#include "arguments.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::cuda {

kernels::Window window_of(const WindowSpec& spec) {
  if (spec.spatial < 1 || spec.spatial > 3) {
    fail_config(
        fmt::format("device {}: windows have 1 to 3 dimensions, found {}", kDeviceName, spec.spatial));
  }
  kernels::Window window;
  for (int i = 0; i < spec.spatial; ++i) {
    const int d = 3 - spec.spatial + i;
    window.in[d] = spec.extent[i];
    window.out[d] = spec.places(i);
    window.kernel[d] = spec.kernel[i];
    window.stride[d] = spec.stride[i];
    window.dilation[d] = spec.dilation[i];
    window.pad[d] = spec.pad_low[i];
  }
  return window;
}

WindowPlanes window_planes(const TensorView& view, std::int64_t elements, const char* where,
                           const char* name) {
  if (view.shape.rank() < 2 || view.elements() != view.shape[0] * view.shape[1] * elements) {
    fail_run(fmt::format("device {}: {}: {} must be [batch, channels, {} elements], found {}", kDeviceName,
                         where, name, elements, view.shape.text()));
  }
  return {view.shape[0], view.shape[1]};
}

std::int64_t covered_channels(const WindowSpec& spec, const WindowPlanes& x, std::int64_t first_channel,
                              const TensorView& columns, const char* where) {
  const std::int64_t width = as_matrix(columns).columns,
                     channels = width / std::max<std::int64_t>(1, spec.offsets());
  if (channels * spec.offsets() != width || first_channel < 0 || first_channel + channels > x.channels) {
    fail_run(
        fmt::format("device {}: {}: columns of width {} from channel {} on do not fit {} channels of {} "
                    "offsets each",
                    kDeviceName, where, width, first_channel, x.channels, spec.offsets()));
  }
  return channels;
}

}  // namespace tenon::cuda
