// Operator families of a device for spectral layers: Fourier transforms along one dimension of which a few
// modes are kept, and products of complex matrices, one per mode. Complex numbers are pairs of reals (c64,
// c128). Conventions are those of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

#include <memory>

TENON_ABI_BEGIN

/// With w = exp(-2 pi i / N) over the N points x_n and the kept modes z_k. The adjoints are those under the
/// real inner product Re(conj(a) b), in which a complex number is two reals.
enum class FftMap : std::uint8_t {
  kForward = 0,         ///< points to modes: z_k = sum over n of x_n w^(kn)
  kInverse = 1,         ///< modes to points: x_n = 1/N sum over k of z_k w^(-kn); modes not kept are zero
  kForwardAdjoint = 2,  ///< modes to points
  kInverseAdjoint = 3,  ///< points to modes
};
/// Whether a map reads points and writes modes.
constexpr bool reads_points(FftMap map) {
  return map == FftMap::kForward || map == FftMap::kInverseAdjoint;
}

/// A transform along the middle dimension of points [outer, length, inner] and modes [outer, low + high,
/// inner]. Kept are k = 0 ... low - 1, then k = length - high ... length - 1. Real points have conjugate
/// modes, of which the lower half is kept: low <= length / 2 + 1, high = 0. Libraries disagree on the
/// imaginary parts of z_0 and, for an even length, z_(length / 2): here they count as zero, and are written
/// as zero.
struct FftSpec {
  std::int64_t outer = 1, length = 1, inner = 1;
  std::int64_t low = 1, high = 0;
  FftMap map = FftMap::kForward;
  bool real = false;  ///< points are real: f32, bf16 (modes are c64) or f64 (c128)
  DType points = DType::kC64;
};

/// A prepared transform; run() allocates nothing. A line's bits depend on its own elements, the length, the
/// kept modes and the map alone: not on outer, inner, the place in memory or the number of threads.
class FftKernel {
 public:
  virtual ~FftKernel();
  virtual std::size_t scratch_bytes() const = 0;
  virtual void run(TensorView in, TensorView out, bool accumulate, TensorView scratch) = 0;
};

class Fft {
 public:
  static constexpr const char* kId = "tenon.device.fft/1";
  virtual ~Fft();
  /// Throws Error(kConfig) for modes that do not exist.
  virtual std::unique_ptr<FftKernel> prepare(const FftSpec& spec) = 0;
};

/// y[b, o, m] = sum over i of x[b, i, m] w[i, o, m], all complex.
struct BatchedComplexGemmSpec {
  std::int64_t batch = 0, in = 0, out = 0, modes = 0;
  DType dtype = DType::kC64;  ///< or c128
};

/// x, dx: [batch, in, modes], y, dy: [batch, out, modes], complex. w, dw: reals [in, out, modes, 2]. Sums
/// have ascending order, so the bits of a mode do not depend on which others are there.
class BatchedComplexGemm {
 public:
  virtual ~BatchedComplexGemm();
  virtual std::size_t scratch_bytes() const = 0;
  virtual void forward(TensorView x, TensorView w, TensorView y, TensorView scratch) = 0;
  /// dx[b, i, m] = sum over o of dy[b, o, m] conj(w[i, o, m])
  virtual void backward_input(TensorView w, TensorView dy, TensorView dx, TensorView scratch) = 0;
  /// dw[i, o, m] (+)= sum over b of conj(x[b, i, m]) dy[b, o, m]
  virtual void backward_weight(TensorView x, TensorView dy, TensorView dw, bool accumulate,
                               TensorView scratch) = 0;
};

class BatchedComplexGemms {
 public:
  static constexpr const char* kId = "tenon.device.modes/1";
  virtual ~BatchedComplexGemms();
  virtual std::unique_ptr<BatchedComplexGemm> prepare(const BatchedComplexGemmSpec& spec) = 0;
};

TENON_ABI_END
