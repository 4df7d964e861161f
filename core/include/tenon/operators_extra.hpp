// Operator families of a device (second half: updates of parameters, sliding windows, normalisations,
// interactions). Conventions are those of <tenon/operators.hpp>.
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

/// A window that slides over the last 1 to 3 dimensions of x [batch, channels, extent...]. Entries behind
/// `spatial` are not looked at. Places and offsets within the window are counted row-major.
struct WindowSpec {
  int spatial = 2;
  std::int64_t extent[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  /// Zeros in front of the elements and behind them; so many elements less where negative.
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

/// What a batch normalisation is given besides its tensors. x is [batch, channels, ...].
struct BatchNormSpec {
  double eps = 1e-5;
  double momentum = 0.1;  ///< weight of the new value in the running ones
};

/// Normalisations other than over a row's mean and variance. Empty gain or bias: 1 or 0.
class NormalisationOps {
 public:
  static constexpr const char* kId = "tenon.device.normalisation/1";
  virtual ~NormalisationOps();
  /// y = x * rstd * gain, rstd = 1 / sqrt(mean(x^2) + eps) of the row; x, y: [rows, columns], rstd: [rows].
  virtual void rms_norm(TensorView x, TensorView gain, double eps, TensorView y, TensorView rstd) = 0;
  /// dx may be empty, dgain too.
  virtual void rms_norm_backward(TensorView x, TensorView gain, TensorView rstd, TensorView dy, TensorView dx,
                                 bool accumulate, TensorView dgain, bool accumulate_parameters) = 0;
  /// Normalises each channel by its mean and biased variance over the batch. mean, rstd: [channels], kept for
  /// backward. The running values, unless empty, are blended with the mean and the unbiased variance.
  virtual void batch_norm(const BatchNormSpec& spec, TensorView x, TensorView gain, TensorView bias,
                          TensorView running_mean, TensorView running_variance, TensorView y, TensorView mean,
                          TensorView rstd) = 0;
  /// Normalises by given values: evaluation.
  virtual void batch_norm_fixed(const BatchNormSpec& spec, TensorView x, TensorView gain, TensorView bias,
                                TensorView mean, TensorView variance, TensorView y) = 0;
  virtual void batch_norm_backward(TensorView x, TensorView gain, TensorView mean, TensorView rstd,
                                   TensorView dy, TensorView dx, bool accumulate, TensorView dgain,
                                   TensorView dbias, bool accumulate_parameters) = 0;
};

/// How a recommendation model joins the dense part z0 [batch, width] of a sample with its vectors
/// z [batch, count, width].
enum class Interaction : std::uint8_t {
  kDot = 0,          ///< z0, then t_i . t_j over T = [z0; z], i ascending, then j < i (Naumov et al. 2019)
  kDotItself = 1,    ///< the same for j <= i
  kConcatenate = 2,  ///< z0, then z; z0 alone may have another width
  kSum = 3,          ///< z0 + sum over count of z
};
/// Columns of the result.
constexpr std::int64_t interaction_columns(Interaction kind, std::int64_t z0_width, std::int64_t count,
                                           std::int64_t width) {
  if (kind == Interaction::kDot) return z0_width + (count + 1) * count / 2;
  if (kind == Interaction::kDotItself) return z0_width + (count + 1) * (count + 2) / 2;
  return z0_width + (kind == Interaction::kConcatenate ? count * width : 0);
}

class InteractionOps {
 public:
  static constexpr const char* kId = "tenon.device.interaction/1";
  virtual ~InteractionOps();
  /// y: [batch, columns].
  virtual void interact(Interaction kind, TensorView z0, TensorView z, TensorView y) = 0;
  /// dz0 and dz may be empty; neither is memory of an argument. The elements of z0 and z are read for the dot
  /// products alone.
  virtual void interact_backward(Interaction kind, TensorView z0, TensorView z, TensorView dy, TensorView dz0,
                                 bool accumulate_z0, TensorView dz, bool accumulate_z) = 0;
};

TENON_ABI_END
