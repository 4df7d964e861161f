// Convolutions and their adjoints as one sum per element of the result, on host memory: the replacement for a
// library where there is none, and in its tests.
#pragma once

#include "device_common/windows.hpp"

#include <tenon/kernels/cuda/window.hpp>
#include <tenon/ops/convolution.hpp>

namespace tenon::cuda {

struct ConvolutionShape {
  std::int64_t batch = 0, channels = 0, features = 0;
  kernels::Window window = {};

  std::int64_t elements() const { return kernels::cuda::volume(window.in); }
  std::int64_t places() const { return kernels::cuda::volume(window.out); }
  std::int64_t offsets() const { return kernels::cuda::volume(window.kernel); }

  /// Index of the element that `place` finds at `offset` of its window; -1: a zero around x.
  std::int64_t element(std::int64_t place, std::int64_t offset) const {
    const kernels::cuda::WindowCoordinates p(place, window.out), k(offset, window.kernel);
    std::int64_t found = 0;
    for (int d = 0; d < 3; ++d) {
      const std::int64_t at = kernels::cuda::covered_along(window, d, p.at[d], k.at[d]);
      if (!kernels::cuda::in_plane(window, d, at)) return -1;
      found = found * window.in[d] + at;
    }
    return found;
  }
};

inline ConvolutionShape shape_of(const ConvolutionSpec& spec) {
  return {spec.batch, spec.channels, spec.features, device_arguments::window_of(spec.window)};
}

/// Element of y: over channels and offsets.
struct ForwardSum {
  ConvolutionShape shape;
  const float *x, *w;
  std::int64_t items() const { return shape.batch * shape.features * shape.places(); }
  float operator()(std::int64_t item) const {
    const std::int64_t place = item % shape.places(), plane = item / shape.places(),
                       feature = plane % shape.features, sample = plane / shape.features;
    float sum = 0;
    for (std::int64_t c = 0; c < shape.channels; ++c)
      for (std::int64_t offset = 0; offset < shape.offsets(); ++offset) {
        const std::int64_t element = shape.element(place, offset);
        if (element < 0) continue;
        sum += x[(sample * shape.channels + c) * shape.elements() + element] *
               w[(feature * shape.channels + c) * shape.offsets() + offset];
      }
    return sum;
  }
};

/// Element of dx: over features, and the places whose windows hold it.
struct InputSum {
  ConvolutionShape shape;
  const float *w, *dy;
  std::int64_t items() const { return shape.batch * shape.channels * shape.elements(); }
  float operator()(std::int64_t item) const {
    const std::int64_t element = item % shape.elements(), plane = item / shape.elements(),
                       channel = plane % shape.channels, sample = plane / shape.channels;
    float sum = 0;
    kernels::cuda::for_each_covering(shape.window, element, [&](std::int64_t place, std::int64_t offset) {
      for (std::int64_t f = 0; f < shape.features; ++f)
        sum += w[(f * shape.channels + channel) * shape.offsets() + offset] *
               dy[(sample * shape.features + f) * shape.places() + place];
    });
    return sum;
  }
};

/// Element of dw: over samples and places.
struct WeightSum {
  ConvolutionShape shape;
  const float *x, *dy;
  std::int64_t items() const { return shape.features * shape.channels * shape.offsets(); }
  float operator()(std::int64_t item) const {
    const std::int64_t offset = item % shape.offsets(), pair = item / shape.offsets(),
                       channel = pair % shape.channels, feature = pair / shape.channels;
    float sum = 0;
    for (std::int64_t b = 0; b < shape.batch; ++b)
      for (std::int64_t place = 0; place < shape.places(); ++place) {
        const std::int64_t element = shape.element(place, offset);
        if (element < 0) continue;
        sum += x[(b * shape.channels + channel) * shape.elements() + element] *
               dy[(b * shape.features + feature) * shape.places() + place];
      }
    return sum;
  }
};

}  // namespace tenon::cuda
