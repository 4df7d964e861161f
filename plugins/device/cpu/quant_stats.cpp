// Error statistics of a quantized matrix, in f64 (QuantizeStats). Slow on purpose: element by element over
// what the kernels wrote, with the decode scales that a reader of codes would use. Sums are taken over tiles
// of 16 rows and 16 columns, tiles into a fixed number of parts, parts in order.
#include "quant.hpp"

#include <tenon/kernels/hadamard.hpp>
#include <tenon/kernels/scales.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace tenon::cpu {
namespace {

constexpr std::int64_t kTile = 16;
constexpr std::int64_t kParts = 64;
/// The block's largest element may be an ulp beyond the largest code; that is not counted as saturation.
constexpr double kSlack = 1 + 0x1p-20;

float to_f32(float x) {
  return x;
}
float to_f32(kernels::Bf16 x) {
  return kernels::to_float(x);
}

struct Part {
  std::uint32_t amax = 0;
  double signal = 0, noise = 0, relative = 0;
  std::int64_t elements = 0, non_zero = 0, underflow = 0, saturated = 0;
  double scale_min = std::numeric_limits<double>::infinity(), scale_max = 0;

  void add(float x, double decoded, double scale, double limit) {
    const double value = x, error = std::abs(value - decoded);
    amax = std::max(amax, kernels::magnitude_bits(x));
    signal += value * value;
    noise += error * error;
    ++elements;
    if (scale != 0) {
      scale_min = std::min(scale_min, scale);
      scale_max = std::max(scale_max, scale);
      if (std::abs(value) > limit * scale) ++saturated;
    }
    if (x == 0) return;
    ++non_zero;
    relative += error / std::abs(value);
    if (decoded == 0) ++underflow;
  }

  void add(const Part& other) {
    amax = std::max(amax, other.amax);
    signal += other.signal;
    noise += other.noise;
    relative += other.relative;
    elements += other.elements;
    non_zero += other.non_zero;
    underflow += other.underflow;
    saturated += other.saturated;
    scale_min = std::min(scale_min, other.scale_min);
    scale_max = std::max(scale_max, other.scale_max);
  }

  QuantizeStats stats() const {
    const auto share = [](auto part, std::int64_t whole) {
      return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    return {.amax = std::bit_cast<float>(amax),
            .signal = signal,
            .noise = noise,
            .relative_error = share(relative, non_zero),
            .underflow = share(underflow, non_zero),
            .saturated = share(saturated, elements),
            .scale_min = scale_max == 0 ? 0 : scale_min,
            .scale_max = scale_max};
  }
};

template <class S>
class Measurement {
 public:
  Measurement(const QuantizeSpec& spec, const Measured<S>& measured)
      : spec_(spec),
        measured_(measured),
        down_(runs_down(spec)),
        rows_(spec.rotate && down_ ? blocks_of(spec.rows, kTile) * kTile : spec.rows),
        largest_(kernels::layout_of(static_cast<kernels::Element>(spec.element)).largest * kSlack) {}

  QuantizeStats run() const {
    const std::int64_t tiles = blocks_of(rows_, kTile), across = blocks_of(spec_.columns, kTile);
    const std::int64_t per_part = std::max<std::int64_t>(1, blocks_of(tiles, kParts));
    std::array<Part, kParts> parts;
    parallel_for(blocks_of(tiles, per_part), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) {
        for (std::int64_t t = p * per_part; t < std::min(tiles, (p + 1) * per_part); ++t)
          for (std::int64_t a = 0; a < across; ++a) add_tile(t * kTile, a * kTile, parts[std::size_t(p)]);
      }
    });
    Part sum;
    for (const Part& part : parts) sum.add(part);
    return sum.stats();
  }

 private:
  void add_tile(std::int64_t row, std::int64_t column, Part& part) const {
    float tile[kTile][kTile] = {};
    for (std::int64_t i = row; i < std::min(row + kTile, spec_.rows); ++i)
      for (std::int64_t j = column; j < std::min(column + kTile, spec_.columns); ++j)
        tile[i - row][j - column] = to_f32(measured_.x[i * spec_.columns + j]);
    if (spec_.rotate) rotate(tile);
    // A scale is found by divisions: once for a row of the tile, or for a column, where blocks allow it.
    const bool wide = spec_.scale == BlockScale::kTensor || spec_.block_columns % kTile == 0;
    const bool tall = !wide && spec_.block_rows % kTile == 0;
    std::array<double, kTile> of_columns{};
    for (std::int64_t j = column; tall && j < std::min(column + kTile, spec_.columns); ++j)
      of_columns[std::size_t(j - column)] = decode_scale(row, j);
    for (std::int64_t i = row; i < std::min(row + kTile, rows_); ++i) {
      const double of_row = wide ? decode_scale(i, column) : 0;
      for (std::int64_t j = column; j < std::min(column + kTile, spec_.columns); ++j) {
        const double scale = wide ? of_row : tall ? of_columns[std::size_t(j - column)] : decode_scale(i, j);
        double value = kernels::to_float(measured_.values[i * spec_.columns + j]);
        // Values include the block's scale already, except an f32 one, and never that of the matrix.
        value *= spec_.scale == BlockScale::kFloat ? scale : matrix_scale(i, j);
        part.add(tile[i - row][j - column], value, scale, largest_);
      }
    }
  }

  void rotate(float (&tile)[kTile][kTile]) const {
    for (int line = 0; line < kTile; ++line) {
      float v[kTile];
      for (int e = 0; e < kTile; ++e)
        v[e] = kernels::to_float(kernels::to_bf16(down_ ? tile[e][line] : tile[line][e]));
      kernels::rotate16(v);
      for (int e = 0; e < kTile; ++e) (down_ ? tile[e][line] : tile[line][e]) = v[e];
    }
  }

  double matrix_scale(std::int64_t i, std::int64_t j) const {
    return measured_.lines != nullptr ? measured_.lines[down_ ? j : i].decode : measured_.tensor.decode;
  }

  double decode_scale(std::int64_t i, std::int64_t j) const {
    if (spec_.scale == BlockScale::kTensor) return measured_.tensor.decode;
    const std::int64_t block =
        i / spec_.block_rows * blocks_of(spec_.columns, spec_.block_columns) + j / spec_.block_columns;
    switch (spec_.scale) {
      case BlockScale::kTwoLevel:
        return kernels::decode(measured_.scales[block], kernels::Element::kE4M3) * matrix_scale(i, j);
      case BlockScale::kPower:
        return kernels::decode_e8m0(measured_.scales[block]);
      default:
        return reinterpret_cast<const float*>(measured_.scales)[block];
    }
  }

  const QuantizeSpec& spec_;
  const Measured<S>& measured_;
  const bool down_;
  const std::int64_t rows_;
  const double largest_;
};

}  // namespace

template <class S>
QuantizeStats measure(const QuantizeSpec& spec, const Measured<S>& measured) {
  return Measurement<S>(spec, measured).run();
}

template QuantizeStats measure(const QuantizeSpec&, const Measured<float>&);
template QuantizeStats measure(const QuantizeSpec&, const Measured<kernels::Bf16>&);

}  // namespace tenon::cpu
