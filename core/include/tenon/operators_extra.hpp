// Operator families of a device (second half: updates of parameters, convolution, spectral transforms,
// quantization). Conventions are those of <tenon/operators.hpp>.
#pragma once

#include <tenon/operators.hpp>

TENON_ABI_BEGIN

/// Hyper-parameters of one AdamW update (Loshchilov and Hutter, decoupled decay).
struct AdamWStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  std::int64_t count = 1;     ///< this update is number `count`, from 1
  double gradient_scale = 1;  ///< multiplies the gradient as it is read (unscaling and clipping)
};

/// Hyper-parameters of one SGD update with momentum, as PyTorch defines it.
struct SgdStep {
  double lr = 0, momentum = 0, dampening = 0, decay = 0;
  bool nesterov = false;
  bool first = false;  ///< the momentum buffer is set, not blended
  double gradient_scale = 1;
};

/// Update rules over flat slices of arenas. w, g, m, v: equal length, f32 or f64.
class UpdateOps {
 public:
  static constexpr const char* kId = "tenon.device.update/1";
  virtual ~UpdateOps();
  virtual void adamw(TensorView w, TensorView g, TensorView m, TensorView v, const AdamWStep& step) = 0;
  /// momentum_buffer is empty when momentum is 0.
  virtual void sgd(TensorView w, TensorView g, TensorView momentum_buffer, const SgdStep& step) = 0;
};

/// Convolution over 1 to 3 spatial dimensions. x: [batch, c_in, ...], w: [c_out, c_in / groups, ...].
struct ConvSpec {
  int spatial = 2;
  std::int64_t batch = 0, c_in = 0, c_out = 0, groups = 1;
  std::int64_t extent[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  std::int64_t pad_low[3] = {0, 0, 0}, pad_high[3] = {0, 0, 0};
  DType dtype = DType::kF32;
  bool bias = false;
};

class ConvKernel {
 public:
  virtual ~ConvKernel();
  virtual std::size_t scratch_bytes() const = 0;
  virtual void forward(TensorView x, TensorView w, TensorView bias, TensorView y, TensorView scratch) = 0;
  virtual void backward_data(TensorView dy, TensorView w, TensorView dx, bool accumulate,
                             TensorView scratch) = 0;
  virtual void backward_weights(TensorView x, TensorView dy, TensorView dw, TensorView dbias, bool accumulate,
                                TensorView scratch) = 0;
};

class Convolution {
 public:
  static constexpr const char* kId = "tenon.device.conv/1";
  virtual ~Convolution();
  virtual std::unique_ptr<ConvKernel> prepare(const ConvSpec& spec) = 0;
};

/// Discrete Fourier transform over the last `rank` dimensions, unnormalised forward, 1/n inverse. Complex
/// data is c64 / c128.
struct FftSpec {
  int rank = 1;
  std::int64_t batch = 1;
  std::int64_t extent[3] = {1, 1, 1};
  bool real = false;  ///< real to half-complex along the last dimension
  bool inverse = false;
  DType dtype = DType::kC64;
};

class FftKernel {
 public:
  virtual ~FftKernel();
  virtual std::size_t scratch_bytes() const = 0;
  virtual void run(TensorView in, TensorView out, TensorView scratch) = 0;
};

class Fft {
 public:
  static constexpr const char* kId = "tenon.device.fft/1";
  virtual ~Fft();
  virtual std::unique_ptr<FftKernel> prepare(const FftSpec& spec) = 0;
};

/// Block-scaled number formats. Codes are packed as their dtype says; scales are decode scales.
struct QuantSpec {
  DType code = DType::kF4E2M1;
  DType scale = DType::kF8E4M3;  ///< of a block; kF32 for float scales
  std::int64_t rows = 0, columns = 0;
  std::int64_t block_rows = 1, block_columns = 16;
  std::string_view
      rule;  ///< how a block scale follows from amax: "nvfp4", "floor", "ceil", "even", "rceil", ...
  bool stochastic = false;
  bool transpose = false;   ///< codes of the transposed matrix
  bool hadamard16 = false;  ///< randomised 16-point Hadamard transform first
};

class QuantKernel {
 public:
  virtual ~QuantKernel();
  virtual std::size_t scratch_bytes() const = 0;
  virtual std::size_t code_bytes() const = 0;
  virtual std::size_t scale_bytes() const = 0;
  /// first: global index of element 0 (stochastic rounding draws by global index). tensor_scale: f32 [1].
  virtual void encode(TensorView x, TensorView codes, TensorView scales, TensorView tensor_scale,
                      RandomKey key, std::uint64_t step, std::uint64_t first, TensorView scratch) = 0;
  /// out: bf16 or f32, code x block scale (the tensor scale is left to the product's alpha).
  virtual void decode(TensorView codes, TensorView scales, TensorView out) = 0;
};

class QuantOps {
 public:
  static constexpr const char* kId = "tenon.device.quant/1";
  virtual ~QuantOps();
  virtual std::unique_ptr<QuantKernel> prepare(const QuantSpec& spec) = 0;
};

TENON_ABI_END
