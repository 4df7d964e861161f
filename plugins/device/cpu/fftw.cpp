// Plans of FFTW. Its planner is one for the whole process and not thread-safe; ranks are threads.
#include "fftw.hpp"

#include <tenon/error.hpp>

#include <fftw3.h>

#include <mutex>
#include <string>

namespace tenon::cpu {
namespace {

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

}  // namespace

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

template class FftwPlan<float>;
template class FftwPlan<double>;

}  // namespace tenon::cpu
