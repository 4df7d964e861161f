// Fourier transforms along one dimension (family Fft): products with the matrix of the kept modes, which is
// stored where it is small and otherwise computed from the waves of its length; a library for long lines of
// many modes, where there is one.
#include "fft.hpp"
#include "common.hpp"
#include "device_common/ffts.hpp"
#include "queue.hpp"

#include <tenon/kernels/cuda/fft.hpp>
#include <tenon/kernels/cuda/fft_lines.hpp>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

// Batches of a few lines, always equally many, are packed in scratch memory, transformed whole, and unpacked:
// so a line's bits do not depend on how many others there are. Real lines of odd length are transformed as
// complex ones, whose bits do not depend on other lines (fft_lines.hpp).

/// Points of a batch, and its most lines: enough to fill a device, with little wasted work.
constexpr std::int64_t kBatchPoints = std::int64_t{1} << 18, kBatchLines = 256;
/// Alignment in bytes of both buffers in scratch memory.
constexpr std::size_t kLineAlignment = 256;

constexpr std::size_t line_aligned(std::size_t bytes) {
  return (bytes + kLineAlignment - 1) / kLineAlignment * kLineAlignment;
}

/// S: a real of a point as it is stored.
template <class S>
class LibraryFftKernel final : public FftKernel {
  using T = Arith<S>;

 public:
  LibraryFftKernel(Queue& queue, const FftSpec& spec, std::string& reason)
      : queue_(queue),
        lines_(spec.outer * spec.inner),
        together_(std::clamp<std::int64_t>(kBatchPoints / spec.length, 1, kBatchLines)),
        to_modes_(reads_points(spec.map)),
        complex_(spec.real && spec.length % 2 == 1),
        points_{spec.length, spec.inner, spec.real ? 1 : 2},
        kept_{spec.low + spec.high, spec.inner, 2},
        modes_{spec.length, spec.low, spec.low + spec.high, spec.real,
               spec.map == FftMap::kInverse || spec.map == FftMap::kInverseAdjoint} {
    plan_ = make_line_plan(
        queue, {spec.length, together_, to_modes_, spec.real && !complex_, std::is_same_v<T, double>},
        reason);
  }
  bool usable() const { return plan_ != nullptr; }

  std::size_t scratch_bytes() const override {
    return points_bytes() + line_aligned(reals_of(2 * bodies::fft_spectrum(modes_, complex_)));
  }

  void run(TensorView in, TensorView out, bool accumulate, TensorView scratch) override {
    S* points =
        device_arguments::checked_reals<S>(to_modes_ ? in : out, lines_ * points_.reals(), kWhere, "points");
    T* kept =
        device_arguments::checked_reals<T>(to_modes_ ? out : in, lines_ * kept_.reals(), kWhere, "modes");
    if (scratch.data == nullptr || scratch.space != MemorySpace::kCuda ||
        scratch.bytes() < static_cast<std::int64_t>(scratch_bytes()) ||
        reinterpret_cast<std::uintptr_t>(scratch.data) % kNeeded != 0)
      refuse_view(scratch, DType::kU8, static_cast<std::int64_t>(scratch_bytes()), kWhere, "scratch");
    T* const packed = scratch.as<T>();
    T* const spectrum = packed + points_bytes() / sizeof(T);
    for (std::int64_t first = 0; first < lines_; first += together_) {
      const bodies::FftBatch batch{first, together_, lines_, complex_};
      if (to_modes_) {
        start(bodies::PackPoints<S, T>{points, packed, points_, batch});
        plan_->run(packed, spectrum);
        start(bodies::UnpackModes<T>{spectrum, kept, kept_, modes_, batch, accumulate});
      } else {
        start(bodies::PackModes<T>{kept, spectrum, kept_, modes_, batch});
        plan_->run(spectrum, packed);
        start(bodies::UnpackPoints<S, T>{packed, points, points_, batch, accumulate});
      }
    }
  }

 private:
  static constexpr const char* kWhere = "fft";
  static constexpr std::uintptr_t kNeeded = 16;

  std::size_t reals_of(std::int64_t of_line) const { return (together_ * of_line) * sizeof(T); }
  std::size_t points_bytes() const {
    return line_aligned(reals_of(complex_ ? 2 * points_.reals() : points_.reals()));
  }
  template <class Body>
  void start(const Body& body) {
    queue_.launch(kWhere, grid_for(body.items()), body);
  }

  Queue& queue_;
  std::int64_t lines_, together_;
  bool to_modes_;
  bool complex_;  ///< fft_lines.hpp
  bodies::FftSide points_, kept_;
  bodies::FftModes modes_;
  std::unique_ptr<LinePlan> plan_;
};

template <class S>
std::unique_ptr<FftKernel> planned(Queue& queue, const FftSpec& spec, std::string& reason) {
  auto kernel = std::make_unique<LibraryFftKernel<S>>(queue, spec, reason);
  if (!kernel->usable()) return nullptr;
  return kernel;
}

/// Whether whole transforms are less work than products with the matrix: by length and kept modes alone.
constexpr bool wants_library(const FftSpec& spec) {
  constexpr std::int64_t kMostDirect = std::int64_t{1} << 15;
  return spec.low + spec.high > 0 && spec.length > kMostDirect / (spec.low + spec.high);
}

/// For a checked spec. Null, and why, where there is no plan.
std::unique_ptr<FftKernel> make_library_fft(Queue& queue, const FftSpec& spec, std::string& reason) {
  if (spec.points == DType::kF64 || spec.points == DType::kC128) return planned<double>(queue, spec, reason);
  if (spec.points == DType::kBF16) return planned<Bf16>(queue, spec, reason);
  return planned<float>(queue, spec, reason);
}

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
    elements.reserve(points_.reals() * modes_.reals());
    for (std::int64_t p = 0; p < points_.reals(); ++p)
      for (std::int64_t q = 0; q < modes_.reals(); ++q) elements.push_back(matrix(p, q));
    numbers_.set(elements);
  }

  std::size_t scratch_bytes() const override { return 0; }

  void run(TensorView in, TensorView out, bool accumulate, TensorView) override {
    S* points =
        device_arguments::checked_reals<S>(to_modes_ ? in : out, lines_ * points_.reals(), kWhere, "points");
    T* modes =
        device_arguments::checked_reals<T>(to_modes_ ? out : in, lines_ * modes_.reals(), kWhere, "modes");
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
      queue_.launch(kWhere, body.mesh(), body);
    } else {
      const bodies::DirectFft<T, S, T, Matrix> body{modes,        points, modes_, points_,   matrix,
                                                    waves_.modes, lines_, false,  accumulate};
      queue_.launch(kWhere, body.mesh(), body);
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
    device_arguments::check_fft(spec);
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

std::vector<double> fft_waves(std::int64_t length) {
  std::vector<double> waves;
  waves.reserve(2 * length);
  for (std::int64_t n = 0; n < length; ++n) {
    const double angle = 2 * 3.14159265358979323846 * static_cast<double>(n) / static_cast<double>(length);
    waves.push_back(std::cos(angle));
    waves.push_back(std::sin(angle));
  }
  return waves;
}

std::unique_ptr<Fft> make_fft(Queue& queue) {
  return std::make_unique<CudaFft>(queue);
}

std::string describe_fft(const Fft& fft) {
  return static_cast<const CudaFft&>(fft).description();
}

}  // namespace tenon::cuda
