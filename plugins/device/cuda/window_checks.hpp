// What the sliding windows (window.cpp) are given, checked against their WindowSpec. Plain C++, since the
// messages are formatted.
#pragma once

#include <tenon/kernels/window.hpp>
#include <tenon/ops/convolution.hpp>

namespace tenon::cuda {

/// The kernels' form of a spec: its dimensions are the last of three.
kernels::Window window_of(const WindowSpec& spec);

/// Planes of a tensor [batch, channels, extent...] of so many elements each.
struct WindowPlanes {
  std::int64_t batch = 0, channels = 0;
  std::int64_t count() const { return batch * channels; }
};
WindowPlanes window_planes(const TensorView& view, std::int64_t elements, const char* where,
                           const char* name);

/// How many channels of x the columns hold.
std::int64_t covered_channels(const WindowSpec& spec, const WindowPlanes& x, std::int64_t first_channel,
                              const TensorView& columns, const char* where);

}  // namespace tenon::cuda
