// Real discrete Fourier transforms of n x n values by FFTW, not normalised: X[k] = sum over j of x[j] exp(-2
// pi i j k / n). Plans are estimated and never measured, since measuring picks algorithms by the clock and
// with them the bits.
#pragma once

#include <complex>
#include <cstddef>
#include <memory>
#include <span>

namespace tenon::navier_stokes {

using Complex = std::complex<double>;

/// Memory as FFTW's plans want it, aligned.
template <typename T>
class Plane {
 public:
  explicit Plane(std::size_t size);
  std::span<T> values() { return {memory_.get(), size_}; }
  std::span<const T> values() const { return {memory_.get(), size_}; }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(T* memory) const;
  };
  std::unique_ptr<T[], Free> memory_;
  std::size_t size_;
};

/// Values: [n][n]. Spectrum of a real field: [n][n / 2 + 1], the half that determines it.
class PlaneTransform {
 public:
  explicit PlaneTransform(std::size_t n);
  ~PlaneTransform();
  PlaneTransform(const PlaneTransform&) = delete;
  PlaneTransform& operator=(const PlaneTransform&) = delete;

  std::size_t n() const { return n_; }
  std::size_t points() const { return n_ * n_; }
  std::size_t modes() const { return n_ * (n_ / 2 + 1); }
  /// Destroys `values`.
  void forward(Plane<double>& values, Plane<Complex>& spectrum) const;
  /// n * n times the inverse. Destroys `spectrum`.
  void inverse(Plane<Complex>& spectrum, Plane<double>& values) const;
  /// n * n times the inverse, in place, of a whole spectrum [n][n]. Two real fields at once, one as the
  /// imaginary part of the other: FFTW's complex rows use vector instructions, its real ones do not.
  void inverse_pair(Plane<Complex>& pair) const;

 private:
  struct Plans;
  std::size_t n_;
  std::unique_ptr<Plans> plans_;
};

}  // namespace tenon::navier_stokes
