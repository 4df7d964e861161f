// Operator family of a device that computes convolutions from images. It is optional: without it, or where it
// declines, windows (<tenon/operators_extra.hpp>) and products do the same. Conventions are those of
// <tenon/operators.hpp>.
#pragma once

#include <tenon/operators_extra.hpp>

#include <memory>

TENON_ABI_BEGIN

/// y = map(w * x + bias): every place of y sums its window of x over all channels.
struct ConvolutionSpec {
  WindowSpec window;
  std::int64_t batch = 0, channels = 0, features = 0;
  bool bias = false;
  Epilogue epilogue = Epilogue::kNone;
  DType dtype = DType::kF32;  ///< of all tensors
};

/// A prepared convolution. x, dx: [batch, channels, extent...], y, dy: [batch, features, places...], w, dw:
/// [features, channels x offsets], bias: [features]. Calls allocate nothing, and give the same bits for the
/// same arguments, kernels and threads.
class Convolution {
 public:
  virtual ~Convolution();
  virtual std::size_t scratch_bytes() const = 0;
  /// `bias` is empty where the specification has none.
  virtual void forward(TensorView x, TensorView w, TensorView bias, TensorView y, TensorView scratch) = 0;
  /// The adjoints of w * x: nothing of bias and map.
  virtual void backward_input(TensorView w, TensorView dy, TensorView dx, bool accumulate,
                              TensorView scratch) = 0;
  virtual void backward_weight(TensorView x, TensorView dy, TensorView dw, bool accumulate,
                               TensorView scratch) = 0;
};

class Convolutions {
 public:
  static constexpr const char* kId = "tenon.device.convolution/1";
  virtual ~Convolutions();
  /// Null where windows and products are the faster way, or the only one.
  virtual std::unique_ptr<Convolution> prepare(const ConvolutionSpec& spec) = 0;
};

TENON_ABI_END
