// Unnormalised real discrete Fourier transforms of n x n values by FFTW: X[k] = sum over j of x[j] exp(-2 pi
// i j k / n). Plans are estimated, never measured: measuring selects algorithms by timing, which would change
// the bits.
#pragma once

#include <complex>
#include <cstddef>
#include <memory>
#include <span>

namespace tenon::navier_stokes {

using Complex = std::complex<double>;

/// Aligned memory, as FFTW's plans require.
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
  /// Computes n * n times the inverse. Destroys `spectrum`.
  void inverse(Plane<Complex>& spectrum, Plane<double>& values) const;
  /// Computes n * n times the inverse, in place, of a whole spectrum [n][n]. It transforms two real fields at
  /// once, one as the imaginary part of the other: FFTW's complex rows use vector instructions, its real ones
  /// do not.
  void inverse_pair(Plane<Complex>& pair) const;

 private:
  struct Plans;
  std::size_t n_;
  std::unique_ptr<Plans> plans_;
};

}  // namespace tenon::navier_stokes
