// Windows that slide over planes of up to three dimensions: the data movement of convolutions, and pooling.
// Every element of a result is one chain in Arith<S> over the offsets of the window in ascending order,
// rounded once: all kernel sets produce the same bits, and callers may split lines and planes in any way.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// The extent of the last dimension is at index 2; unused leading ones are 1, their pads 0. A plane has the
/// product of `in` as elements, that of `out` as places, and a window that of `kernel` as offsets.
struct Window {
  std::int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, pad[3] = {0, 0, 0};
};

/// columns: [batch * places, channels * offsets]. Sample b's first channel is at x + b sample_stride.
template <class S>
struct UnfoldArgs {
  Window window;
  std::int64_t batch = 0, channels = 0, sample_stride = 0;
  const S* x = nullptr;
  S* columns = nullptr;
};
/// x: [channel] planes as above, each element (+)= the sum of its copies in columns.
template <class S>
struct FoldArgs {
  Window window;
  std::int64_t batch = 0, channels = 0, sample_stride = 0;
  const S* columns = nullptr;
  S* x = nullptr;
  bool accumulate = false;
};
/// Consecutive planes. Forward reads x and writes y (and index); backward reads dy (and index) and writes dx.
/// An element outside the plane is no candidate for the maximum; a window without candidates yields
/// -infinity, -1.
template <class S>
struct PoolArgs {
  Window window;
  bool count_padding = true;  ///< average: divide by all offsets, or by those inside the plane
  const S* x = nullptr;
  S* y = nullptr;
  std::int32_t* index = nullptr;  ///< element of the plane that is the first greatest; a NaN is above all
  const S* dy = nullptr;
  S* dx = nullptr;
  bool accumulate = false;
};

template <class S>
struct WindowOps {
  /// A line is the places that differ in the last dimension alone: batch * out[0] * out[1] of them.
  void (*unfold)(const UnfoldArgs<S>&, std::int64_t line_begin, std::int64_t line_end);
  /// A plane is one channel of one sample: batch * channels of them.
  void (*fold)(const FoldArgs<S>&, std::int64_t plane_begin, std::int64_t plane_end);
  void (*max_pool_forward)(const PoolArgs<S>&, std::int64_t plane_begin, std::int64_t plane_end);
  void (*max_pool_backward)(const PoolArgs<S>&, std::int64_t plane_begin, std::int64_t plane_end);
  void (*average_pool_forward)(const PoolArgs<S>&, std::int64_t plane_begin, std::int64_t plane_end);
  void (*average_pool_backward)(const PoolArgs<S>&, std::int64_t plane_begin, std::int64_t plane_end);
};

}  // namespace tenon::kernels
