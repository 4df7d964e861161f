// Arguments of sliding windows (family WindowOps) for the kernels, checked against their WindowSpec. Does not
// use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/window.hpp>
#include <tenon/ops/convolution.hpp>

#include <algorithm>
#include <string>

namespace tenon::device_arguments {

/// The kernels' form of a spec: its dimensions are the last of three.
inline kernels::Window window_of(const WindowSpec& spec) {
  if (spec.spatial < 1 || spec.spatial > 3)
    refuse_config("windows have 1 to 3 dimensions, found " + std::to_string(spec.spatial));
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

/// Planes of a tensor [batch, channels, extent...], each of `elements` elements.
struct WindowPlanes {
  std::int64_t batch = 0, channels = 0, elements = 0;
  std::int64_t count() const { return batch * channels; }
};
inline WindowPlanes window_planes(const TensorView& view, std::int64_t elements, const char* where,
                                  const char* name) {
  if (view.shape.rank() < 2 || view.elements() != view.shape[0] * view.shape[1] * elements) {
    refuse(where, std::string(name) + " must be [batch, channels, " + std::to_string(elements) +
                      " elements], found " + view.shape.text());
  }
  return {view.shape[0], view.shape[1], elements};
}

/// The channels of x that columns hold, from `first_channel` on. Args<S>: kernels::UnfoldArgs or
/// kernels::FoldArgs.
template <template <class> class Args, class S>
Args<S> window_columns(const WindowSpec& spec, const TensorView& x, std::int64_t first_channel,
                       const TensorView& columns, const char* where) {
  const WindowPlanes planes = window_planes(x, spec.elements(), where, "x");
  const std::int64_t width = as_matrix(columns).columns,
                     channels = width / std::max<std::int64_t>(1, spec.offsets());
  if (channels * spec.offsets() != width || first_channel < 0 || first_channel + channels > planes.channels) {
    refuse(where, "columns of width " + std::to_string(width) + " from channel " +
                      std::to_string(first_channel) + " on do not fit " + std::to_string(planes.channels) +
                      " channels of " + std::to_string(spec.offsets()) + " offsets each");
  }
  Args<S> part;
  part.batch = planes.batch;
  part.channels = channels;
  part.sample_stride = planes.channels * planes.elements;
  part.columns = checked<S>(columns, planes.batch * spec.places() * width, where, "columns");
  part.x = checked<S>(x, x.elements(), where, "x") + first_channel * planes.elements;
  part.window = window_of(spec);
  return part;
}

/// Arguments of a pooling, and its number of planes; the caller sets what one kind of pooling needs besides.
template <class S>
struct Pooling {
  kernels::PoolArgs<S> args;
  std::int64_t planes = 0;
};
template <class S>
Pooling<S> pooling(const WindowSpec& spec, const TensorView& x, const TensorView& y, const char* where) {
  Pooling<S> pool;
  pool.planes = window_planes(x, spec.elements(), where, "x").count();
  pool.args.x = checked<S>(x, x.elements(), where, "x");
  pool.args.y = checked<S>(y, pool.planes * spec.places(), where, "y");
  pool.args.window = window_of(spec);
  return pool;
}
template <class S>
Pooling<S> pooling_backward(const WindowSpec& spec, const TensorView& dy, const TensorView& dx,
                            bool accumulate, const char* where) {
  Pooling<S> pool;
  pool.planes = window_planes(dx, spec.elements(), where, "dx").count();
  pool.args.dy = checked<S>(dy, pool.planes * spec.places(), where, "dy");
  pool.args.dx = checked<S>(dx, dx.elements(), where, "dx");
  pool.args.accumulate = accumulate;
  pool.args.window = window_of(spec);
  return pool;
}

}  // namespace tenon::device_arguments
