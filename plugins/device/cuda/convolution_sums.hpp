// Convolutions and their adjoints as one sum per element of the result, on host memory: what stands in for a
// library where there is none, and in its tests.
#pragma once

#include <tenon/operators_convolution.hpp>

namespace tenon::cuda {

/// Three dimensions, the first ones of one element where a window has fewer.
struct ConvolutionShape {
  std::int64_t batch = 0, channels = 0, features = 0;
  std::int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, pad[3] = {0, 0, 0};

  ConvolutionShape() = default;
  explicit ConvolutionShape(const ConvolutionSpec& spec)
      : batch(spec.batch), channels(spec.channels), features(spec.features) {
    for (int i = 0; i < spec.window.spatial; ++i) {
      const int d = 3 - spec.window.spatial + i;
      in[d] = spec.window.extent[i], out[d] = spec.window.places(i), kernel[d] = spec.window.kernel[i];
      stride[d] = spec.window.stride[i], dilation[d] = spec.window.dilation[i];
      pad[d] = spec.window.pad_low[i];
    }
  }

  static std::int64_t product(const std::int64_t (&extents)[3]) {
    return extents[0] * extents[1] * extents[2];
  }
  std::int64_t elements() const { return product(in); }
  std::int64_t places() const { return product(out); }
  std::int64_t offsets() const { return product(kernel); }

  /// The element that `place` finds at `offset` of its window; -1: a zero around x.
  std::int64_t element(std::int64_t place, std::int64_t offset) const {
    std::int64_t found = 0, scale = 1;
    for (int d = 2; d >= 0; --d) {
      const std::int64_t at = place % out[d] * stride[d] + offset % kernel[d] * dilation[d] - pad[d];
      place /= out[d], offset /= kernel[d];
      if (at < 0 || at >= in[d]) return -1;
      found += at * scale, scale *= in[d];
    }
    return found;
  }
};

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
    for (std::int64_t offset = 0; offset < shape.offsets(); ++offset) {
      const std::int64_t place = place_of(element, offset);
      if (place < 0) continue;
      for (std::int64_t f = 0; f < shape.features; ++f)
        sum += w[(f * shape.channels + channel) * shape.offsets() + offset] *
               dy[(sample * shape.features + f) * shape.places() + place];
    }
    return sum;
  }

 private:
  /// Whose window has the element at `offset`; -1: no place's.
  std::int64_t place_of(std::int64_t element, std::int64_t offset) const {
    std::int64_t found = 0, scale = 1;
    for (int d = 2; d >= 0; --d) {
      const std::int64_t from =
          element % shape.in[d] + shape.pad[d] - offset % shape.kernel[d] * shape.dilation[d];
      element /= shape.in[d], offset /= shape.kernel[d];
      if (from < 0 || from % shape.stride[d] != 0 || from / shape.stride[d] >= shape.out[d]) return -1;
      found += from / shape.stride[d] * scale, scale *= shape.out[d];
    }
    return found;
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
