// The hops of a truncated transform: steps, and moves of blocks between ranks.
#include "spectrum.hpp"

#include <algorithm>

namespace tenon::fno {
namespace {

/// Element type of moves: complex numbers travel as pairs of reals, in one more dimension.
DType real_parts(DType dtype) {
  return dtype == DType::kC64 ? DType::kF32 : dtype == DType::kC128 ? DType::kF64 : dtype;
}

Shape in_parts(const Shape& shape, DType dtype) {
  if (real_parts(dtype) == dtype) return shape;
  std::vector<std::int64_t> extents(shape.extents().begin(), shape.extents().end());
  extents.push_back(2);
  return Shape(std::span<const std::int64_t>(extents));
}

Layout in_parts(Layout layout, DType dtype) {
  layout.shape = in_parts(layout.shape, dtype);
  return layout;
}

TensorView in_parts(TensorView view) {
  return {view.data, in_parts(view.shape, view.dtype), real_parts(view.dtype), view.space};
}

}  // namespace

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
  if (points.elements() == 0) return;
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
  return to_modes_ == nullptr ? 0 : std::max(to_modes_->scratch_bytes(), to_points_->scratch_bytes());
}

void SpectralStep::to_modes(TensorView points, TensorView modes, TensorView scratch) const {
  if (to_modes_ != nullptr) to_modes_->run(points, modes, false, scratch);
}

void SpectralStep::to_points(TensorView modes, TensorView points, bool accumulate, TensorView scratch) const {
  if (to_points_ != nullptr) to_points_->run(modes, points, accumulate, scratch);
}

Spectrum::Spectrum(Fft& fft, Mesh& mesh, const SpectrumSpec& spec, const std::string& what) {
  const DType complex = complex_type(spec.activations);
  std::vector<std::int64_t> kept;
  for (const Dimension& dimension : spec.dimensions) kept.push_back(dimension.modes());
  modes_ = spec.points;
  for (const Stage& stage : stages(spec.points, kept, spec.form, mesh.extents(), what)) {
    const Dimension& dimension = spec.dimensions[static_cast<std::size_t>(stage.dim) - 2];
    const bool real = stage.dim + 1 == spec.points.shape.rank();
    const DType dtype = real ? spec.activations : complex;
    if (!(stage.before == modes_)) add_move(mesh, spec, modes_, stage.before, dtype, what);
    Hop& hop = hops_.emplace_back();
    hop.in = part_of(stage.before, mesh.place()).extents;
    hop.in_dtype = dtype, hop.out_dtype = complex;
    hop.step = std::make_unique<SpectralStep>(fft, hop.in, stage.dim, dimension, spec.to_modes,
                                              spec.to_points, real, dtype);
    hop.out = hop.step->modes();
    modes_ = resized(stage.before, stage.dim, dimension.modes());
  }
}

void Spectrum::add_move(Mesh& mesh, const SpectrumSpec& spec, const Layout& from, const Layout& to,
                        DType dtype, const std::string& what) {
  Hop& hop = hops_.emplace_back();
  hop.in = part_of(from, mesh.place()).extents, hop.out = part_of(to, mesh.place()).extents;
  hop.in_dtype = hop.out_dtype = dtype;
  const DType item = real_parts(dtype);
  hop.there = redistribution(
      mesh, {.from = in_parts(from, dtype), .to = in_parts(to, dtype), .dtype = item, .device = spec.device},
      what);
  hop.back = redistribution(
      mesh, {.from = in_parts(to, dtype), .to = in_parts(from, dtype), .dtype = item, .device = spec.device},
      what);
}

std::size_t Spectrum::scratch_bytes() const {
  std::size_t most = 0;
  for (const Hop& hop : hops_)
    if (hop.step != nullptr) most = std::max(most, hop.step->scratch_bytes());
  return most;
}

std::size_t Spectrum::between_bytes(int turn) const {
  std::size_t most = 0;
  for (std::size_t i = turn; i + 1 < hops_.size(); i += 2)
    most = std::max(most, tensor_bytes(hops_[i].out_dtype, hops_[i].out.elements()));
  return most;
}

TensorView Spectrum::between(std::size_t hop, const Memory& memory) const {
  return in_workspace(memory.between[hop % 2], hops_[hop].out_dtype, hops_[hop].out);
}

void Spectrum::to_modes(TensorView points, TensorView modes, const Memory& memory) const {
  TensorView block = points;
  for (std::size_t i = 0; i < hops_.size(); ++i) {
    const TensorView next = i + 1 == hops_.size() ? modes : between(i, memory);
    if (hops_[i].step != nullptr) {
      hops_[i].step->to_modes(block, next, memory.scratch);
    } else {
      hops_[i].there->forward(in_parts(block), in_parts(next));
    }
    block = next;
  }
}

void Spectrum::to_points(TensorView modes, TensorView points, bool accumulate, const Memory& memory) const {
  TensorView block = modes;
  for (std::size_t i = hops_.size(); i-- > 0;) {
    const TensorView next = i == 0 ? points : between(i - 1, memory);
    if (hops_[i].step != nullptr) {
      hops_[i].step->to_points(block, next, i == 0 && accumulate, memory.scratch);
    } else {
      hops_[i].back->forward(in_parts(block), in_parts(next), i == 0 && accumulate);
    }
    block = next;
  }
}

}  // namespace tenon::fno
