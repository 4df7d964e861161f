// Block-scaled number formats (family QuantOps): quantizers, partial products under scales, binary16. Results
// do not depend on the number of threads: blocks are rounded alone, draws are functions of the position, and
// sums are added in a fixed order.
#include "common.hpp"
#include "device_common/quantized.hpp"
#include "device_common/quantizers.hpp"

#include <tenon/kernels/hadamard.hpp>
#include <tenon/kernels/half.hpp>
#include <tenon/kernels/scales.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

namespace tenon::cpu {
namespace {

using device_arguments::blocks_of;
using device_arguments::runs_down;
using kernels::Bf16;
using kernels::TensorScale;

/// Bands of a matrix: every band begins where a block and a group of draws begin.
struct Bands {
  std::int64_t height = 1, width = 1;  ///< rows and columns of a band
  std::int64_t across = 0, count = 0;
  explicit Bands(const QuantizeSpec& spec);
};

Bands::Bands(const QuantizeSpec& spec) {
  constexpr std::int64_t kGroup = 16;
  const bool whole = spec.scale == BlockScale::kTensor;
  const std::int64_t down = whole ? 1 : spec.block_rows;
  const std::int64_t unit = whole ? kGroup : std::lcm(spec.block_columns, kGroup);
  const std::int64_t columns = std::max<std::int64_t>(1, spec.columns);
  width = columns;
  // A strip of blocks across a wide matrix would be more than a thread's share.
  if (down * columns > 2 * kFlatBlock && unit < columns) {
    width = blocks_of(std::max<std::int64_t>(1, kFlatBlock / down), unit) * unit;
    width = std::min(width, columns);
  }
  height = down * std::max<std::int64_t>(1, kFlatBlock / (width * down));
  across = blocks_of(columns, width);
  count = spec.columns == 0 ? 0 : across * blocks_of(spec.rows, height);
}

// Error statistics of a quantized matrix, in f64 (QuantizeStats). Slow on purpose: element by element over
// what the kernels wrote, with the decode scales that a reader of codes would use. Sums are taken over tiles
// of 16 rows and 16 columns, tiles into a fixed number of parts, parts in order.

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

/// The codes of a matrix and the matrix that they represent, for measurement.
template <class S>
struct Measured {
  const S* x = nullptr;
  const kernels::Bf16* values = nullptr;        ///< as QuantizeOutput
  const std::uint8_t* scales = nullptr;         ///< bits, or floats for kFloat
  kernels::TensorScale tensor;                  ///< of the matrix
  const kernels::TensorScale* lines = nullptr;  ///< or of its lines
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

/// QuantizeStats in f64: per strip of rows, strips added in order.
template <class S>
QuantizeStats measure(const QuantizeSpec& spec, const Measured<S>& measured) {
  return Measurement<S>(spec, measured).run();
}

// One prepared quantizer (contract: QuantizeKernel): checks views, finds the scale of the matrix, and runs
// the kernels over bands.

/// Keeps the largest; bits of magnitudes order like the values, with NaN above infinity.
void raise(std::atomic<std::uint32_t>& largest, std::uint32_t value) {
  std::uint32_t seen = largest.load(std::memory_order_relaxed);
  while (seen < value && !largest.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

template <class S>
class CpuQuantizeKernel final : public device_arguments::QuantizerShape<S> {
 public:
  CpuQuantizeKernel(const Kernels& kernels, const QuantizeSpec& spec)
      : Shape(spec),
        ops_([&]() -> const auto& {
          if constexpr (std::is_same_v<S, float>) {
            return kernels.table->quantize_f32;
          } else {
            return kernels.table->quantize_bf16;
          }
        }()),
        bands_(spec) {}

  /// Scales are needed for measurement even if the caller does not ask for them; then those of lines.
  std::size_t scratch_bytes() const override { return rounded_scale_bytes() + lines() * sizeof(TensorScale); }
  float amax(TensorView x, TensorView) override {
    const S* in = this->input(x);
    std::atomic<std::uint32_t> largest{0};
    for_bands([&](std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
      raise(largest, amax_of(in + row * spec_.columns + column, rows, columns));
    });
    return std::bit_cast<float>(largest.load());
  }

  float run(TensorView x, float amax, const QuantizeDraws& draws, const QuantizeOutput& out,
            TensorView scratch, QuantizeStats* stats) override {
    void* scales = nullptr;
    auto args = this->quantizing(x, draws, out, scratch, stats != nullptr, scales);
    if (spec_.line_scale)
      args.lines = find_lines(args.x, static_cast<std::byte*>(scratch.data), out.line_scales);
    else
      args.tensor = this->matrix_scale(amax);

    std::atomic<std::uint32_t> largest{0};
    for_bands([&](std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
      std::uint32_t met = 0;
      auto band = cut(args, row, column, rows, columns);
      band.magnitude = &met;
      ops_.quantize(band);
      raise(largest, met);
    });
    if (stats != nullptr) {
      *stats = measure<S>(spec_, {.x = args.x,
                                  .values = args.values,
                                  .scales = static_cast<const std::uint8_t*>(scales),
                                  .tensor = args.tensor,
                                  .lines = args.lines});
    }
    const bool finite =
        largest.load() < kernels::kInfinityBits && (!this->needs_amax() || std::isfinite(amax));
    return finite ? args.tensor.decode : std::numeric_limits<float>::quiet_NaN();
  }

  void decode(TensorView codes, TensorView scales, TensorView values) override {
    const auto args = this->decoding(codes, scales, values);
    for_bands([&](std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
      // The rows that the rotation added have codes of their own.
      const std::int64_t end = row + rows == spec_.rows ? padded_rows() : row + rows;
      ops_.dequantize(cut(args, row, column, end - row, columns));
    });
  }

 private:
  using Shape = device_arguments::QuantizerShape<S>;
  using Shape::spec_, Shape::packed_, Shape::lines, Shape::padded_rows, Shape::rounded_scale_bytes;
  using typename Shape::Args;

  std::uint32_t amax_of(const S* x, std::int64_t rows, std::int64_t columns) const {
    if (spec_.rotate) return ops_.amax_rotated(x, rows, columns, spec_.columns, runs_down(spec_));
    return ops_.amax(x, rows, columns, spec_.columns);
  }

  const TensorScale* find_lines(const S* x, std::byte* scratch, const TensorView& out) const {
    auto* scales = reinterpret_cast<TensorScale*>(scratch + rounded_scale_bytes());
    float* decode = checked_or_null<float>(out, lines(), device_arguments::kQuantizer, "line_scales");
    const bool down = runs_down(spec_);
    const std::int64_t length = std::max<std::int64_t>(1, down ? spec_.rows : spec_.columns);
    parallel_for(
        lines(), std::max<std::int64_t>(1, kFlatBlock / length), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t line = begin; line < end; ++line) {
            const std::uint32_t bits =
                down ? amax_of(x + line, spec_.rows, 1) : amax_of(x + line * spec_.columns, 1, spec_.columns);
            scales[line] = this->matrix_scale(std::bit_cast<float>(bits));
            if (decode != nullptr) decode[line] = scales[line].decode;
          }
        });
    return scales;
  }

  /// Calls body(first row, first column, rows, columns) for every band.
  template <class Body>
  void for_bands(Body body) const {
    parallel_for(bands_.count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t band = begin; band < end; ++band) {
        const std::int64_t row = band / bands_.across * bands_.height;
        const std::int64_t column = band % bands_.across * bands_.width;
        body(row, column, std::min(bands_.height, spec_.rows - row),
             std::min(bands_.width, spec_.columns - column));
      }
    });
  }

  Args cut(Args args, std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) const {
    args.rows = rows;
    args.columns = columns;
    if (args.x != nullptr) args.x += row * args.stride + column;
    if (args.values != nullptr) args.values += row * args.values_stride + column;
    if (args.codes != nullptr) args.codes += row * args.codes_stride + (packed_ ? column / 2 : column);
    if (args.scaling != kernels::Scaling::kTensor) {
      const std::int64_t block = row / spec_.block_rows * args.scales_stride + column / spec_.block_columns;
      if (args.scales != nullptr) args.scales += block;
      if (args.float_scales != nullptr) args.float_scales += block;
    }
    if (args.lines != nullptr) args.lines += runs_down(spec_) ? column : row;
    args.origin_row += row;
    args.origin_column += column;
    return args;
  }

  const kernels::QuantizeOps<S>& ops_;
  const Bands bands_;
};

std::unique_ptr<QuantizeKernel> make_quantizer(const Kernels& kernels, const QuantizeSpec& spec) {
  device_quantizers::check_quantizer(spec);
  if (spec.input == DType::kF32) return std::make_unique<CpuQuantizeKernel<float>>(kernels, spec);
  return std::make_unique<CpuQuantizeKernel<Bf16>>(kernels, spec);
}

class CpuQuantOps final : public QuantOps {
 public:
  explicit CpuQuantOps(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<QuantizeKernel> quantizer(const QuantizeSpec& spec) override {
    return make_quantizer(kernels_, spec);
  }

  void scale_product(TensorView p, const ProductScales& a, const ProductScales& b, TensorView c,
                     bool accumulate) override {
    const device_arguments::ScaleProduct product(p, a, b, c);
    const Matrix size = product.size;
    const float *in = product.p, *of_rows = product.of_rows, *of_columns = product.of_columns;
    float* out = product.c;
    parallel_for(size.rows, row_block(size.columns), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float row = of_rows == nullptr ? 1.0f : of_rows[i / a.lines * a.step];
        const float* from = in + i * size.columns;
        float* to = out + i * size.columns;
        if (of_columns != nullptr && b.lines == 1 && b.step == 1) {
          scale_each(from, row, of_columns, size.columns, to, accumulate);
          continue;
        }
        const std::int64_t lines = of_columns == nullptr ? size.columns : b.lines;
        const float* column = of_columns;
        for (std::int64_t j = 0; j < size.columns; j += lines) {
          const float scale = column == nullptr ? row : row * *column;
          scale_all(from + j, scale, std::min(lines, size.columns - j), to + j, accumulate);
          if (column != nullptr) column += b.step;
        }
      }
    });
  }

  HalfCount round_to_f16(TensorView x, TensorView y) override {
    const std::int64_t n = x.elements();
    const auto* in = checked<float>(x, n, "round_to_f16", "x");
    auto* out = checked<float>(y, n, "round_to_f16", "y");
    std::atomic<std::int64_t> overflow{0}, underflow{0};
    parallel_for(n, kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
      std::int32_t over = 0, under = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(in[i]);
        const std::uint32_t rounded = kernels::half_bits(bits);
        over += kernels::half_overflows(bits, rounded) ? 1 : 0;
        under += kernels::half_underflows(bits, rounded) ? 1 : 0;
        out[i] = std::bit_cast<float>(rounded);
      }
      overflow += over;
      underflow += under;
    });
    return {overflow, underflow};
  }

 private:
  static void scale_each(const float* from, float row, const float* columns, std::int64_t n, float* to,
                         bool accumulate) {
    if (accumulate)
      for (std::int64_t j = 0; j < n; ++j) to[j] += row * columns[j] * from[j];
    else
      for (std::int64_t j = 0; j < n; ++j) to[j] = row * columns[j] * from[j];
  }
  static void scale_all(const float* from, float scale, std::int64_t n, float* to, bool accumulate) {
    if (accumulate)
      for (std::int64_t j = 0; j < n; ++j) to[j] += scale * from[j];
    else
      for (std::int64_t j = 0; j < n; ++j) to[j] = scale * from[j];
  }

  Kernels kernels_;
};

}  // namespace

std::unique_ptr<QuantOps> make_quant_ops(const Kernels& kernels) {
  return std::make_unique<CpuQuantOps>(kernels);
}

}  // namespace tenon::cpu
