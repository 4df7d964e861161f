// From points to kept modes and back, one dimension after the other: the last one first, each cut right after
// its transform, so that what follows is small. A step sees a block in which its own dimension is whole and
// knows nothing of the others: between two steps a block may be moved to where the next dimension is whole.
#pragma once

#include "common.hpp"

#include <tenon/operators_spectral.hpp>

#include <memory>
#include <vector>

namespace tenon::fno {

/// One dimension: its points, and the modes k = 0 ... low - 1 and points - high ... points - 1 of them. In
/// the truncated spectrum low ones come first; a mode's place there is global, whoever holds it.
struct Dimension {
  std::int64_t points = 1, low = 1, high = 0;
  std::int64_t modes() const { return low + high; }
};

/// The dimensions of points that keep `modes` each: low and high ones, but of the last dimension, whose
/// points are real, low ones alone.
std::vector<Dimension> dimensions_of(std::span<const std::int64_t> points,
                                     std::span<const std::int64_t> modes);

/// The transform of a block along its dimension `dim`, both ways.
class SpectralStep {
 public:
  /// `points`: the block before it, [lines, ...] with `dimension.points` at `dim`.
  SpectralStep(Fft& fft, const Shape& points, int dim, const Dimension& dimension, FftMap to_modes,
               FftMap to_points, bool real, DType dtype);

  const Shape& modes() const { return modes_; }  ///< shape of the block after it
  std::size_t scratch_bytes() const;
  void to_modes(TensorView points, TensorView modes, TensorView scratch) const;
  void to_points(TensorView modes, TensorView points, bool accumulate, TensorView scratch) const;

 private:
  Shape modes_;
  std::unique_ptr<FftKernel> to_modes_, to_points_;
};

/// All steps of one side of a spectral convolution, [lines, points...] real and [lines, modes...] complex.
class Spectrum {
 public:
  Spectrum() = default;
  /// The maps are kForward and kForwardAdjoint for x, kInverseAdjoint and kInverse for y.
  Spectrum(Fft& fft, std::int64_t lines, std::span<const Dimension> dimensions, FftMap to_modes,
           FftMap to_points, DType activations);

  const Shape& modes() const { return steps_.back().modes(); }
  std::size_t scratch_bytes() const;
  /// Of the blocks between steps, which take turns in two workspaces.
  std::size_t between_bytes(int turn) const;

  struct Memory {
    TensorView between[2], scratch;
  };
  void to_modes(TensorView points, TensorView modes, const Memory& memory) const;
  void to_points(TensorView modes, TensorView points, bool accumulate, const Memory& memory) const;

 private:
  TensorView between(std::size_t step, const Memory& memory) const;

  DType complex_ = DType::kC64;
  std::vector<SpectralStep> steps_;  ///< the last dimension's first
};

}  // namespace tenon::fno
