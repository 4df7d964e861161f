// Fourier transforms along one dimension (family Fft). Every line is copied into an aligned buffer and
// transformed there by the one plan of its length, and only its kept modes are copied out: a line's bits
// depend on nothing else, whatever its stride and neighbours are, so threads share lines in any order.
#include "fft.hpp"

#include "common.hpp"
#include "device_common/ffts.hpp"

#include <fftw3.h>
#include <tenon/error.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::cpu {
namespace {

// One interface to FFTW's two precisions, and a plan that frees itself. Plans are estimated, never measured:
// a measured plan may differ in the next process, with other bits. FFTW's planner is one for the whole
// process and not thread-safe; ranks are threads.

enum class PlanKind : std::uint8_t { kRealToComplex, kComplexToReal, kForward, kBackward };

/// One transform of `length` points between two buffers of a caller, packed and aligned as `from` and `to`
/// are. Complex numbers are pairs of T (float, double). Complex to real overwrites its input.
template <class T>
class FftwPlan {
 public:
  FftwPlan(PlanKind kind, int length, T* from, T* to);
  ~FftwPlan();
  FftwPlan(const FftwPlan&) = delete;
  FftwPlan& operator=(const FftwPlan&) = delete;

  /// Thread-safe; allocates nothing.
  void run(T* from, T* to) const;

 private:
  PlanKind kind_;
  void* plan_;
};

/// Alignment in bytes of every buffer, on which FFTW may rely.
inline constexpr std::size_t kFftAlignment = 64;

/// Serialises this plugin's planning; FFTW's own lock, also enabled, covers other FFTW users in this process.
std::mutex& planner() {
  static std::mutex mutex;
  static const bool once = [] {
    fftw_make_planner_thread_safe();
    fftwf_make_planner_thread_safe();
    return true;
  }();
  static_cast<void>(once);
  return mutex;
}

void* make_plan(PlanKind kind, int n, float* from, float* to) {
  auto* complex_from = reinterpret_cast<fftwf_complex*>(from);
  auto* complex_to = reinterpret_cast<fftwf_complex*>(to);
  switch (kind) {
    case PlanKind::kRealToComplex:
      return fftwf_plan_dft_r2c_1d(n, from, complex_to, FFTW_ESTIMATE);
    case PlanKind::kComplexToReal:
      return fftwf_plan_dft_c2r_1d(n, complex_from, to, FFTW_ESTIMATE);
    case PlanKind::kForward:
      return fftwf_plan_dft_1d(n, complex_from, complex_to, FFTW_FORWARD, FFTW_ESTIMATE);
    case PlanKind::kBackward:
      return fftwf_plan_dft_1d(n, complex_from, complex_to, FFTW_BACKWARD, FFTW_ESTIMATE);
  }
  return nullptr;
}

void* make_plan(PlanKind kind, int n, double* from, double* to) {
  auto* complex_from = reinterpret_cast<fftw_complex*>(from);
  auto* complex_to = reinterpret_cast<fftw_complex*>(to);
  switch (kind) {
    case PlanKind::kRealToComplex:
      return fftw_plan_dft_r2c_1d(n, from, complex_to, FFTW_ESTIMATE);
    case PlanKind::kComplexToReal:
      return fftw_plan_dft_c2r_1d(n, complex_from, to, FFTW_ESTIMATE);
    case PlanKind::kForward:
      return fftw_plan_dft_1d(n, complex_from, complex_to, FFTW_FORWARD, FFTW_ESTIMATE);
    case PlanKind::kBackward:
      return fftw_plan_dft_1d(n, complex_from, complex_to, FFTW_BACKWARD, FFTW_ESTIMATE);
  }
  return nullptr;
}

void run_plan(PlanKind kind, void* plan, float* from, float* to) {
  auto* p = static_cast<fftwf_plan>(plan);
  auto* complex_from = reinterpret_cast<fftwf_complex*>(from);
  auto* complex_to = reinterpret_cast<fftwf_complex*>(to);
  if (kind == PlanKind::kRealToComplex) return fftwf_execute_dft_r2c(p, from, complex_to);
  if (kind == PlanKind::kComplexToReal) return fftwf_execute_dft_c2r(p, complex_from, to);
  fftwf_execute_dft(p, complex_from, complex_to);
}

void run_plan(PlanKind kind, void* plan, double* from, double* to) {
  auto* p = static_cast<fftw_plan>(plan);
  auto* complex_from = reinterpret_cast<fftw_complex*>(from);
  auto* complex_to = reinterpret_cast<fftw_complex*>(to);
  if (kind == PlanKind::kRealToComplex) return fftw_execute_dft_r2c(p, from, complex_to);
  if (kind == PlanKind::kComplexToReal) return fftw_execute_dft_c2r(p, complex_from, to);
  fftw_execute_dft(p, complex_from, complex_to);
}

void free_plan(void* plan, const float*) {
  fftwf_destroy_plan(static_cast<fftwf_plan>(plan));
}
void free_plan(void* plan, const double*) {
  fftw_destroy_plan(static_cast<fftw_plan>(plan));
}

template <class T>
FftwPlan<T>::FftwPlan(PlanKind kind, int length, T* from, T* to) : kind_(kind) {
  const std::scoped_lock lock(planner());
  plan_ = make_plan(kind, length, from, to);
  if (plan_ == nullptr)
    fail_run("device cpu: FFTW made no plan for a transform of " + std::to_string(length) + " points");
}

template <class T>
FftwPlan<T>::~FftwPlan() {
  const std::scoped_lock lock(planner());
  free_plan(plan_, static_cast<const T*>(nullptr));
}

template <class T>
void FftwPlan<T>::run(T* from, T* to) const {
  run_plan(kind_, plan_, from, to);
}

using kernels::Arith;

template <class T>
constexpr std::int64_t kItems = static_cast<std::int64_t>(kFftAlignment / sizeof(T));

template <class T>
std::int64_t padded(std::int64_t elements) {
  return (elements + kItems<T> - 1) / kItems<T> * kItems<T>;
}

PlanKind plan_kind(const FftSpec& spec) {
  if (spec.real) return reads_points(spec.map) ? PlanKind::kRealToComplex : PlanKind::kComplexToReal;
  return reads_points(spec.map) ? PlanKind::kForward : PlanKind::kBackward;
}

/// S: a real of a point as it is stored.
template <class S>
class CpuFftKernel final : public FftKernel {
  using T = Arith<S>;

 public:
  explicit CpuFftKernel(const FftSpec& spec)
      : spec_(spec),
        kept_(kept_modes(spec)),
        point_reals_(spec.real ? 1 : 2),
        points_items_(padded<T>(spec.length * point_reals_)),
        spectrum_items_(padded<T>(2 * (spec.real ? spec.length / 2 + 1 : spec.length))),
        parts_(parallel_threads()),
        plan_(make_plan()) {
    const auto n = static_cast<double>(spec.length);
    for (std::int64_t j = 0; j < kept_; ++j) {
      const double terms = mode_terms(spec, j);
      const double factors[] = {1, 1 / n, 1 / terms, terms / n};
      factors_.push_back(static_cast<T>(factors[static_cast<int>(spec.map)]));
    }
  }

  std::size_t scratch_bytes() const override {
    return ((points_items_ + spectrum_items_) * parts_) * sizeof(T);
  }

  void run(TensorView in, TensorView out, bool accumulate, TensorView scratch) override {
    constexpr const char* kWhere = "fft";
    const std::int64_t lines = spec_.outer * spec_.inner;
    if (lines == 0 || kept_ == 0) {
      if (!reads_points(spec_.map) && !accumulate && lines > 0)
        std::fill_n(
            device_arguments::checked_reals<S>(out, lines * spec_.length * point_reals_, kWhere, "out"),
            lines * spec_.length * point_reals_, S{});
      return;
    }
    const bool to_modes = reads_points(spec_.map);
    S* points = device_arguments::checked_reals<S>(to_modes ? in : out, lines * spec_.length * point_reals_,
                                                   kWhere, "points");
    T* modes = device_arguments::checked_reals<T>(to_modes ? out : in, lines * kept_ * 2, kWhere, "modes");
    if (scratch.bytes() < static_cast<std::int64_t>(scratch_bytes()) ||
        reinterpret_cast<std::uintptr_t>(scratch.data) % kFftAlignment != 0)
      refuse_view(scratch, DType::kU8, static_cast<std::int64_t>(scratch_bytes()), kWhere, "scratch");
    const std::int64_t block = (lines + parts_ - 1) / parts_;
    parallel_for(lines, block, [&](std::int64_t begin, std::int64_t end) {
      T* line = static_cast<T*>(scratch.data) + begin / block * (points_items_ + spectrum_items_);
      for (std::int64_t l = begin; l < end; ++l) {
        const std::int64_t outer = l / spec_.inner, inner = l % spec_.inner;
        S* first_point = points + (outer * spec_.length * spec_.inner + inner) * point_reals_;
        T* first_mode = modes + (outer * kept_ * spec_.inner + inner) * 2;
        if (to_modes) {
          points_to_modes(first_point, first_mode, accumulate, line, line + points_items_);
        } else {
          modes_to_points(first_mode, first_point, accumulate, line, line + points_items_);
        }
      }
    });
  }

 private:
  FftwPlan<T> make_plan() const {
    std::vector<T> memory(points_items_ + spectrum_items_ + kItems<T>);
    auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    T* points = memory.data() + (kFftAlignment - address % kFftAlignment) % kFftAlignment / sizeof(T);
    T* spectrum = points + points_items_;
    const bool to_modes = reads_points(spec_.map);
    return FftwPlan<T>(plan_kind(spec_), static_cast<int>(spec_.length), to_modes ? points : spectrum,
                       to_modes ? spectrum : points);
  }

  void points_to_modes(const S* from, T* to, bool accumulate, T* points, T* spectrum) const {
    const std::int64_t stride = spec_.inner * point_reals_;
    for (std::int64_t n = 0; n < spec_.length; ++n)
      for (std::int64_t part = 0; part < point_reals_; ++part)
        points[n * point_reals_ + part] = widen(from[n * stride + part]);
    plan_.run(points, spectrum);
    for (std::int64_t j = 0; j < kept_; ++j) {
      const T factor = factors_[j];
      const T* z = spectrum + 2 * mode_number(spec_, j);
      const T re = factor * z[0], im = is_own_conjugate(spec_, j) ? T{0} : factor * z[1];
      T* out = to + 2 * j * spec_.inner;
      out[0] = accumulate ? out[0] + re : re;
      out[1] = accumulate ? out[1] + im : im;
    }
  }

  void modes_to_points(const T* from, S* to, bool accumulate, T* points, T* spectrum) const {
    std::fill_n(spectrum, spectrum_items_, T{0});
    for (std::int64_t j = 0; j < kept_; ++j) {
      const T factor = factors_[j];
      const T* z = from + 2 * j * spec_.inner;
      T* in = spectrum + 2 * mode_number(spec_, j);
      in[0] = factor * z[0];
      in[1] = is_own_conjugate(spec_, j) ? T{0} : factor * z[1];
    }
    plan_.run(spectrum, points);
    const std::int64_t stride = spec_.inner * point_reals_;
    for (std::int64_t n = 0; n < spec_.length; ++n)
      for (std::int64_t part = 0; part < point_reals_; ++part) {
        S& out = to[n * stride + part];
        const T value = points[n * point_reals_ + part];
        out = narrow<S>(accumulate ? widen(out) + value : value);
      }
  }

  FftSpec spec_;
  std::int64_t kept_, point_reals_, points_items_, spectrum_items_, parts_;
  FftwPlan<T> plan_;
  std::vector<T> factors_;
};

class CpuFft final : public Fft {
 public:
  explicit CpuFft(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<FftKernel> prepare(const FftSpec& spec) override {
    device_arguments::check_fft(spec);
    if (is_direct(spec)) return make_direct_fft(kernels_, spec);
    if (spec.real && spec.points == DType::kF32) return std::make_unique<CpuFftKernel<float>>(spec);
    if (spec.real && spec.points == DType::kF64) return std::make_unique<CpuFftKernel<double>>(spec);
    if (spec.points == DType::kC64) return std::make_unique<CpuFftKernel<float>>(spec);
    if (spec.points == DType::kC128) return std::make_unique<CpuFftKernel<double>>(spec);
    return std::make_unique<CpuFftKernel<kernels::Bf16>>(spec);
  }

 private:
  Kernels kernels_;
};

}  // namespace

std::unique_ptr<Fft> make_fft(const Kernels& kernels) {
  return std::make_unique<CpuFft>(kernels);
}

}  // namespace tenon::cpu
