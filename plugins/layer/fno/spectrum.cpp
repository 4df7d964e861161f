// The steps of a truncated transform and their order.
#include "spectrum.hpp"

#include <algorithm>

namespace tenon::fno {

std::vector<Dimension> dimensions_of(std::span<const std::int64_t> points,
                                     std::span<const std::int64_t> modes) {
  std::vector<Dimension> result;
  for (std::size_t d = 0; d < points.size(); ++d)
    result.push_back({points[d], modes[d], d + 1 < points.size() ? modes[d] : 0});
  return result;
}

SpectralStep::SpectralStep(Fft& fft, const Shape& points, int dim, const Dimension& dimension,
                           FftMap to_modes, FftMap to_points, bool real, DType dtype)
    : modes_(points) {
  modes_[dim] = dimension.modes();
  FftSpec spec{.outer = 1,
               .length = dimension.points,
               .inner = 1,
               .low = dimension.low,
               .high = dimension.high,
               .map = to_modes,
               .real = real,
               .points = dtype};
  for (int d = 0; d < dim; ++d) spec.outer *= points[d];
  for (int d = dim + 1; d < points.rank(); ++d) spec.inner *= points[d];
  to_modes_ = fft.prepare(spec);
  spec.map = to_points;
  to_points_ = fft.prepare(spec);
}

std::size_t SpectralStep::scratch_bytes() const {
  return std::max(to_modes_->scratch_bytes(), to_points_->scratch_bytes());
}

void SpectralStep::to_modes(TensorView points, TensorView modes, TensorView scratch) const {
  to_modes_->run(points, modes, false, scratch);
}

void SpectralStep::to_points(TensorView modes, TensorView points, bool accumulate, TensorView scratch) const {
  to_points_->run(modes, points, accumulate, scratch);
}

Spectrum::Spectrum(Fft& fft, std::int64_t lines, std::span<const Dimension> dimensions, FftMap to_modes,
                   FftMap to_points, DType activations)
    : complex_(complex_type(activations)) {
  std::vector<std::int64_t> extents{lines};
  for (const Dimension& dimension : dimensions) extents.push_back(dimension.points);
  Shape block{std::span<const std::int64_t>(extents)};
  for (std::size_t d = dimensions.size(); d-- > 0;) {
    const bool real = d + 1 == dimensions.size();
    steps_.emplace_back(fft, block, static_cast<int>(d) + 1, dimensions[d], to_modes, to_points, real,
                        real ? activations : complex_);
    block = steps_.back().modes();
  }
}

std::size_t Spectrum::scratch_bytes() const {
  std::size_t most = 0;
  for (const SpectralStep& step : steps_) most = std::max(most, step.scratch_bytes());
  return most;
}

std::size_t Spectrum::between_bytes(int turn) const {
  std::size_t most = 0;
  for (std::size_t i = static_cast<std::size_t>(turn); i + 1 < steps_.size(); i += 2)
    most = std::max(most, tensor_bytes(complex_, steps_[i].modes().elements()));
  return most;
}

TensorView Spectrum::between(std::size_t step, const Memory& memory) const {
  return in_workspace(memory.between[step % 2], complex_, steps_[step].modes());
}

void Spectrum::to_modes(TensorView points, TensorView modes, const Memory& memory) const {
  TensorView block = points;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const TensorView next = i + 1 == steps_.size() ? modes : between(i, memory);
    steps_[i].to_modes(block, next, memory.scratch);
    block = next;
  }
}

void Spectrum::to_points(TensorView modes, TensorView points, bool accumulate, const Memory& memory) const {
  TensorView block = modes;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const TensorView next = i == 0 ? points : between(i - 1, memory);
    steps_[i].to_points(block, next, i == 0 && accumulate, memory.scratch);
    block = next;
  }
}

}  // namespace tenon::fno
