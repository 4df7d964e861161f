// Transforms from points to kept modes and back, one dimension after the other, each truncated right after
// its transform, so that later steps and moves between ranks are small.
#pragma once

#include "stages.hpp"

#include <tenon/ops/spectral.hpp>
#include <tenon/sdk/linear_map.hpp>

#include <memory>
#include <vector>

namespace tenon::fno {

/// One dimension: its points, and the modes k = 0 ... low - 1 and points - high ... points - 1 of them. In
/// the truncated spectrum low ones come first; a mode's place there is global, whichever rank holds it.
struct Dimension {
  std::int64_t points = 1, low = 1, high = 0;
  std::int64_t modes() const { return low + high; }
};

/// The dimensions of points that keep `modes` each: low and high ones, except that the last dimension, whose
/// points are real, keeps low ones alone.
std::vector<Dimension> dimensions_of(std::span<const std::int64_t> points,
                                     std::span<const std::int64_t> modes);

/// The transform of this rank's block along its dimension `dim`, which is whole, both ways.
class SpectralStep {
 public:
  /// `points`: the block before it, with `dimension.points` at `dim`.
  SpectralStep(Fft& fft, const Shape& points, int dim, const Dimension& dimension, FftMap to_modes,
               FftMap to_points, bool real, DType dtype);

  const Shape& modes() const { return modes_; }  ///< shape of the block after it
  std::size_t scratch_bytes() const;
  void to_modes(TensorView points, TensorView modes, TensorView scratch) const;
  void to_points(TensorView modes, TensorView points, bool accumulate, TensorView scratch) const;

 private:
  Shape modes_;
  std::unique_ptr<FftKernel> to_modes_, to_points_;  ///< null for a block without elements
};

/// Transforms of one side of a spectral convolution from points to modes and back.
struct SpectrumSpec {
  Layout points;  ///< [batch, channels, points...]
  std::vector<Dimension> dimensions;
  /// kForward and kForwardAdjoint for x, kInverseAdjoint and kInverse for y.
  FftMap to_modes = FftMap::kForward, to_points = FftMap::kForwardAdjoint;
  DType activations = DType::kF32;
  Form form = Form::kPencil;
  Device* device = nullptr;  ///< whose memory holds the blocks; null: the host's
};

/// All steps of one side, [batch, channels, points...] real and [batch, channels, modes...] complex, and the
/// moves between them. Replicas of a block are equal, also of a gradient, so either moves as a value.
class Spectrum {
 public:
  Spectrum() = default;
  /// Collective; so are to_modes and to_points. `what` begins refusals.
  Spectrum(Fft& fft, Mesh& mesh, const SpectrumSpec& spec, const std::string& what);

  const Layout& modes() const { return modes_; }  ///< of the whole; this rank's shard is local_modes()
  const Shape& local_modes() const { return hops_.back().out; }
  std::size_t scratch_bytes() const;
  /// Bytes of the blocks between hops, which alternate between two workspaces.
  std::size_t between_bytes(int turn) const;

  struct Memory {
    TensorView between[2], scratch;
  };
  void to_modes(TensorView points, TensorView modes, const Memory& memory) const;
  void to_points(TensorView modes, TensorView points, bool accumulate, const Memory& memory) const;

 private:
  /// A step, or a move with its reverse.
  struct Hop {
    Shape in, out;  ///< of this rank's block
    DType in_dtype = DType::kF32, out_dtype = DType::kF32;
    std::unique_ptr<SpectralStep> step;
    std::unique_ptr<LinearMap> there, back;
  };
  void add_move(Mesh& mesh, const SpectrumSpec& spec, const Layout& from, const Layout& to, DType dtype,
                const std::string& what);
  TensorView between(std::size_t hop, const Memory& memory) const;

  Layout modes_;
  std::vector<Hop> hops_;
};

}  // namespace tenon::fno
