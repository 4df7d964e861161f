// Fourier transforms along one dimension (family Fft): products with the matrix of the kept modes, which is
// stored where it is small and computed from the waves of its length where it is not.
#include "complex_views.hpp"
#include "families.hpp"
#include "fft_plan.hpp"

#include <tenon/kernels/cuda/fft.hpp>

#include <algorithm>
#include <vector>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

/// Elements of the largest matrix that is stored.
constexpr std::int64_t kMostStored = std::int64_t{1} << 22;

/// A copy of numbers of the host in the device's memory.
class DeviceNumbers {
 public:
  explicit DeviceNumbers(Queue& queue) : queue_(queue) {}
  ~DeviceNumbers() { queue_.release(memory_); }
  DeviceNumbers(const DeviceNumbers&) = delete;
  DeviceNumbers& operator=(const DeviceNumbers&) = delete;

  template <class T>
  void set(const std::vector<T>& numbers) {
    const std::size_t bytes = numbers.size() * sizeof(T);
    memory_ = queue_.allocate(bytes);
    queue_.copy(numbers.data(), MemorySpace::kHost, memory_, MemorySpace::kCuda, bytes);
  }
  template <class T>
  const T* at() const {
    return static_cast<const T*>(memory_);
  }

 private:
  Queue& queue_;
  void* memory_ = nullptr;
};

/// S: a real of a point as it is stored.
template <class S>
class DirectFftKernel final : public FftKernel {
  using T = Arith<S>;

 public:
  DirectFftKernel(Queue& queue, const FftSpec& spec)
      : queue_(queue),
        lines_(spec.outer * spec.inner),
        to_modes_(reads_points(spec.map)),
        points_{spec.length, spec.inner, spec.real ? 1 : 2},
        modes_{spec.low + spec.high, spec.inner, 2},
        waves_{nullptr,   spec.length,
               spec.low,  spec.low + spec.high,
               spec.real, spec.map == FftMap::kInverse || spec.map == FftMap::kInverseAdjoint},
        stored_(points_.reals() <= kMostStored / std::max<std::int64_t>(1, modes_.reals())),
        numbers_(queue) {
    const std::vector<double> waves = fft_waves(spec.length);
    if (!stored_) {
      numbers_.set(waves);
      waves_.waves = numbers_.template at<double>();
      return;
    }
    bodies::FftWaves on_host = waves_;
    on_host.waves = waves.data();
    const bodies::ComputedMatrix<T> matrix{on_host};
    std::vector<T> elements;
    elements.reserve(static_cast<std::size_t>(points_.reals() * modes_.reals()));
    for (std::int64_t p = 0; p < points_.reals(); ++p)
      for (std::int64_t q = 0; q < modes_.reals(); ++q) elements.push_back(matrix(p, q));
    numbers_.set(elements);
  }

  std::size_t scratch_bytes() const override { return 0; }

  void run(TensorView in, TensorView out, bool accumulate, TensorView) override {
    S* points = checked_reals<S>(to_modes_ ? in : out, lines_ * points_.reals(), kWhere, "points");
    T* modes = checked_reals<T>(to_modes_ ? out : in, lines_ * modes_.reals(), kWhere, "modes");
    if (out.elements() == 0 || (accumulate && in.elements() == 0)) return;
    if (stored_) {
      start(points, modes, accumulate, bodies::StoredMatrix<T>{numbers_.template at<T>(), modes_.reals()});
    } else {
      start(points, modes, accumulate, bodies::ComputedMatrix<T>{waves_});
    }
  }

 private:
  static constexpr const char* kWhere = "fft";

  template <class Matrix>
  void start(S* points, T* modes, bool accumulate, const Matrix& matrix) {
    if (to_modes_) {
      const bodies::DirectFft<S, T, T, Matrix> body{points, modes,  points_, modes_,    matrix,
                                                    waves_, lines_, true,    accumulate};
      queue_.launch(kWhere, body.grid(), body);
    } else {
      const bodies::DirectFft<T, S, T, Matrix> body{modes,  points, modes_, points_,   matrix,
                                                    waves_, lines_, false,  accumulate};
      queue_.launch(kWhere, body.grid(), body);
    }
  }

  Queue& queue_;
  std::int64_t lines_;
  bool to_modes_;
  bodies::FftSide points_, modes_;
  bodies::FftWaves waves_;
  bool stored_;
  DeviceNumbers numbers_;  ///< the matrix, or the waves
};

class CudaFft final : public Fft {
 public:
  explicit CudaFft(Queue& queue) : queue_(queue) {}

  std::unique_ptr<FftKernel> prepare(const FftSpec& spec) override {
    check_fft(spec);
    if (spec.points == (spec.real ? DType::kF32 : DType::kC64)) return make<float>(spec);
    if (spec.points == (spec.real ? DType::kF64 : DType::kC128)) return make<double>(spec);
    if (spec.real && spec.points == DType::kBF16) return make<Bf16>(spec);
    refuse_fft_points(spec);
  }

 private:
  template <class S>
  std::unique_ptr<FftKernel> make(const FftSpec& spec) {
    return std::make_unique<DirectFftKernel<S>>(queue_, spec);
  }

  Queue& queue_;
};

}  // namespace

std::unique_ptr<Fft> make_fft(Queue& queue) {
  return std::make_unique<CudaFft>(queue);
}

}  // namespace tenon::cuda
