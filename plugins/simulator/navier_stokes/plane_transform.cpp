#include "plane_transform.hpp"

#include <fftw3.h>

#include <new>

namespace tenon::navier_stokes {
namespace {

/// FFTW's planner is one for the whole process and guards nothing by itself. Its own lock holds for every
/// plugin that plans.
void enable_planner_lock() {
  static const bool once = (::fftw_make_planner_thread_safe(), true);
  static_cast<void>(once);
}

fftw_complex* raw(Plane<Complex>& plane) {
  return reinterpret_cast<fftw_complex*>(plane.data());
}

}  // namespace

template <typename T>
Plane<T>::Plane(std::size_t size) : memory_(static_cast<T*>(::fftw_malloc(size * sizeof(T)))), size_(size) {
  if (memory_ == nullptr) throw std::bad_alloc();
  for (std::size_t i = 0; i < size; ++i) new (&memory_[i]) T();
}

template <typename T>
void Plane<T>::Free::operator()(T* memory) const {
  ::fftw_free(memory);
}

template class Plane<double>;
template class Plane<Complex>;

struct PlaneTransform::Plans {
  fftw_plan forward = nullptr, inverse = nullptr, inverse_pair = nullptr;
};

PlaneTransform::PlaneTransform(std::size_t n) : n_(n), plans_(std::make_unique<Plans>()) {
  Plane<double> values(points());
  Plane<Complex> spectrum(modes()), pair(points());
  const int side = static_cast<int>(n);
  enable_planner_lock();
  plans_->forward =
      ::fftw_plan_dft_r2c_2d(side, side, values.data(), raw(spectrum), FFTW_ESTIMATE | FFTW_DESTROY_INPUT);
  plans_->inverse =
      ::fftw_plan_dft_c2r_2d(side, side, raw(spectrum), values.data(), FFTW_ESTIMATE | FFTW_DESTROY_INPUT);
  plans_->inverse_pair = ::fftw_plan_dft_2d(side, side, raw(pair), raw(pair), FFTW_BACKWARD, FFTW_ESTIMATE);
}

PlaneTransform::~PlaneTransform() {
  ::fftw_destroy_plan(plans_->forward);
  ::fftw_destroy_plan(plans_->inverse);
  ::fftw_destroy_plan(plans_->inverse_pair);
}

void PlaneTransform::forward(Plane<double>& values, Plane<Complex>& spectrum) const {
  ::fftw_execute_dft_r2c(plans_->forward, values.data(), raw(spectrum));
}

void PlaneTransform::inverse(Plane<Complex>& spectrum, Plane<double>& values) const {
  ::fftw_execute_dft_c2r(plans_->inverse, raw(spectrum), values.data());
}

void PlaneTransform::inverse_pair(Plane<Complex>& pair) const {
  ::fftw_execute_dft(plans_->inverse_pair, raw(pair), raw(pair));
}

}  // namespace tenon::navier_stokes
