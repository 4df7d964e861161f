// Batches of a few lines, always equally many, are packed in scratch memory, transformed whole, and unpacked:
// so a line's bits do not depend on how many others there are.
#include "fft_library.hpp"

#include "complex_views.hpp"

#include <tenon/kernels/cuda/fft_lines.hpp>

#include <algorithm>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

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
        points_{spec.length, spec.inner, spec.real ? 1 : 2},
        kept_{spec.low + spec.high, spec.inner, 2},
        modes_{spec.length, spec.low, spec.low + spec.high, spec.real,
               spec.map == FftMap::kInverse || spec.map == FftMap::kInverseAdjoint} {
    plan_ = make_line_plan(queue, {spec.length, together_, to_modes_, spec.real, std::is_same_v<T, double>},
                           reason);
  }
  bool usable() const { return plan_ != nullptr; }

  std::size_t scratch_bytes() const override {
    return points_bytes() + line_aligned(reals_of(2 * bodies::fft_spectrum(modes_)));
  }

  void run(TensorView in, TensorView out, bool accumulate, TensorView scratch) override {
    S* points = checked_reals<S>(to_modes_ ? in : out, lines_ * points_.reals(), kWhere, "points");
    T* kept = checked_reals<T>(to_modes_ ? out : in, lines_ * kept_.reals(), kWhere, "modes");
    if (scratch.data == nullptr || scratch.space != MemorySpace::kCuda ||
        scratch.bytes() < static_cast<std::int64_t>(scratch_bytes()) ||
        reinterpret_cast<std::uintptr_t>(scratch.data) % kNeeded != 0)
      refuse_view(scratch, DType::kU8, static_cast<std::int64_t>(scratch_bytes()), kWhere, "scratch");
    T* const packed = scratch.as<T>();
    T* const spectrum = packed + points_bytes() / sizeof(T);
    for (std::int64_t first = 0; first < lines_; first += together_) {
      const bodies::FftBatch batch{first, together_, lines_};
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

  std::size_t reals_of(std::int64_t of_line) const {
    return static_cast<std::size_t>(together_ * of_line) * sizeof(T);
  }
  std::size_t points_bytes() const { return line_aligned(reals_of(points_.reals())); }
  template <class Body>
  void start(const Body& body) {
    queue_.launch(kWhere, grid_for(body.items()), body);
  }

  Queue& queue_;
  std::int64_t lines_, together_;
  bool to_modes_;
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

}  // namespace

std::unique_ptr<FftKernel> make_library_fft(Queue& queue, const FftSpec& spec, std::string& reason) {
  if (spec.points == DType::kF64 || spec.points == DType::kC128) return planned<double>(queue, spec, reason);
  if (spec.points == DType::kBF16) return planned<Bf16>(queue, spec, reason);
  return planned<float>(queue, spec, reason);
}

}  // namespace tenon::cuda
