// Convolutions from images by a library that is opened at run time: cuDNN on GPUs (convolution_cudnn.cpp);
// plain sums replace it when emulated.
#pragma once

#include "queue.hpp"

#include <tenon/ops/convolution.hpp>

#include <memory>
#include <string>

namespace tenon::cuda {

/// w * x and its adjoints for one shape in f32, on the queue's stream. `scratch` has scratch_bytes() at a
/// multiple of 256 bytes.
class ConvolutionPasses {
 public:
  virtual ~ConvolutionPasses() = default;
  virtual std::size_t scratch_bytes() const = 0;
  virtual void forward(const float* x, const float* w, float* y, void* scratch) = 0;
  virtual void backward_input(const float* w, const float* dy, float* dx, bool accumulate, void* scratch) = 0;
  virtual void backward_weight(const float* x, const float* dy, float* dw, bool accumulate,
                               void* scratch) = 0;
};

/// One per device.
class ConvolutionLibrary {
 public:
  /// Null, and why, where the library is absent or does not start.
  static std::unique_ptr<ConvolutionLibrary> open(Queue& queue, std::string& reason);
  virtual ~ConvolutionLibrary() = default;

  /// For a shape with elements, zeros around x and nothing cropped. Null where the library has no algorithm
  /// that adds in a fixed order, by sums alone.
  virtual std::unique_ptr<ConvolutionPasses> prepare(const ConvolutionSpec& spec) = 0;
  /// "cuDNN 9.19.0".
  virtual std::string name() const = 0;
};

}  // namespace tenon::cuda
