// Operator families of a device for convolutions: sliding windows, which every device has, and convolutions
// computed from images. The second is optional: without it, or where it declines, windows and products do the
// same. Conventions are those of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/ops/dense.hpp>

#include <memory>

TENON_ABI_BEGIN

/// A window that slides over the last 1 to 3 dimensions of x [batch, channels, extent...]. Entries beyond
/// `spatial` are ignored. Places and offsets within the window are counted row-major.
struct WindowSpec {
  int spatial = 2;
  std::int64_t extent[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  /// Zero padding before and after; negative values crop.
  std::int64_t pad_low[3] = {0, 0, 0}, pad_high[3] = {0, 0, 0};

  /// Places along one dimension; 0 where the window is larger than the padded extent.
  constexpr std::int64_t places(int dim) const {
    const std::int64_t room =
        extent[dim] + pad_low[dim] + pad_high[dim] - dilation[dim] * (kernel[dim] - 1) - 1;
    return room < 0 ? 0 : room / stride[dim] + 1;
  }
  constexpr std::int64_t places() const {
    return product([&](int dim) { return places(dim); });
  }
  constexpr std::int64_t elements() const {
    return product([&](int dim) { return extent[dim]; });
  }
  constexpr std::int64_t offsets() const {
    return product([&](int dim) { return kernel[dim]; });
  }

 private:
  template <typename Factor>
  constexpr std::int64_t product(Factor factor) const {
    std::int64_t result = 1;
    for (int dim = 0; dim < spatial; ++dim) result *= factor(dim);
    return result;
  }
};

/// Sliding windows: the data movement around a convolution's products, and pooling. x, dx: [batch, channels,
/// extent...]; y, dy: [batch, channels, places...]. Padding counts as zero, for maxima as minus infinity.
class WindowOps {
 public:
  static constexpr const char* kId = "tenon.device.window/1";
  virtual ~WindowOps();
  /// columns: [batch * places, c * offsets], where c is what its width says: row (sample, place) holds the
  /// windows of channels first_channel ... first_channel + c - 1, channel by channel. With a window of one
  /// element this brings the channels last.
  virtual void unfold(const WindowSpec& spec, TensorView x, std::int64_t first_channel,
                      TensorView columns) = 0;
  /// The adjoint: each element of those channels of x (+)= sum of its copies in columns, offsets ascending.
  virtual void fold(const WindowSpec& spec, TensorView columns, std::int64_t first_channel, TensorView x,
                    bool accumulate) = 0;
  /// index: i32, as y: the element of the plane that is the first greatest of its window (NaN above all); the
  /// backward sends dy there.
  virtual void max_pool(const WindowSpec& spec, TensorView x, TensorView y, TensorView index) = 0;
  virtual void max_pool_backward(const WindowSpec& spec, TensorView index, TensorView dy, TensorView dx,
                                 bool accumulate) = 0;
  /// The sum of a window over its number of offsets, or of those inside x alone.
  virtual void average_pool(const WindowSpec& spec, TensorView x, bool count_padding, TensorView y) = 0;
  virtual void average_pool_backward(const WindowSpec& spec, TensorView dy, bool count_padding, TensorView dx,
                                     bool accumulate) = 0;
  /// Each element of x [batch, channels, ...] = the value of its channel; values: [channels], f32, or f64
  /// with f64.
  virtual void fill_channels(TensorView values, TensorView x) = 0;
  /// The adjoint, and the gradient of a bias: sums[c] (+)= the sum over samples and points of channel c.
  virtual void sum_channels(TensorView x, TensorView sums, bool accumulate) = 0;
};

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
