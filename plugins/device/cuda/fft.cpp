// Fourier transforms along one dimension (family Fft): products with the matrix of the kept modes, which is
// stored where it is small and otherwise computed from the waves of its length; a library for long lines of
// many modes, where there is one.
#include "complex_views.hpp"
#include "device_numbers.hpp"
#include "families.hpp"
#include "fft_library.hpp"
#include "fft_plan.hpp"

#include <tenon/kernels/cuda/fft.hpp>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

/// Elements of the largest matrix that is stored.
constexpr std::int64_t kMostStored = std::int64_t{1} << 22;

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
        waves_{nullptr,
               {spec.length, spec.low, spec.low + spec.high, spec.real,
                spec.map == FftMap::kInverse || spec.map == FftMap::kInverseAdjoint}},
        stored_(points_.reals() <= kMostStored / std::max<std::int64_t>(1, modes_.reals())),
        numbers_(queue) {
    const std::vector<double> waves = fft_waves(spec.length);
    if (!stored_) {
      numbers_.set(waves);
      waves_.waves = numbers_.template at<double>();
      return;
    }
    const bodies::ComputedMatrix<T> matrix{{waves.data(), waves_.modes}};
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
      const bodies::DirectFft<S, T, T, Matrix> body{points,       modes,  points_, modes_,    matrix,
                                                    waves_.modes, lines_, true,    accumulate};
      queue_.launch(kWhere, body.grid(), body);
    } else {
      const bodies::DirectFft<T, S, T, Matrix> body{modes,        points, modes_, points_,   matrix,
                                                    waves_.modes, lines_, false,  accumulate};
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
    if (wants_library(spec)) {
      std::string reason;
      auto kernel = make_library_fft(queue_, spec, reason);
      note(kernel != nullptr, reason);
      if (kernel != nullptr) return kernel;
    }
    if (spec.points == (spec.real ? DType::kF32 : DType::kC64)) return make<float>(spec);
    if (spec.points == (spec.real ? DType::kF64 : DType::kC128)) return make<double>(spec);
    return make<Bf16>(spec);
  }

  std::string description() const {
    const std::lock_guard lock(noting_);
    return description_;
  }

 private:
  void note(bool planned, const std::string& reason) {
    const std::lock_guard lock(noting_);
    description_ = planned ? "a library for long transforms" : "long transforms of its own (" + reason + ")";
  }

  template <class S>
  std::unique_ptr<FftKernel> make(const FftSpec& spec) {
    return std::make_unique<DirectFftKernel<S>>(queue_, spec);
  }

  Queue& queue_;
  mutable std::mutex noting_;
  std::string description_;
};

}  // namespace

std::unique_ptr<Fft> make_fft(Queue& queue) {
  return std::make_unique<CudaFft>(queue);
}

std::string describe_fft(const Fft& fft) {
  return static_cast<const CudaFft&>(fft).description();
}

}  // namespace tenon::cuda
