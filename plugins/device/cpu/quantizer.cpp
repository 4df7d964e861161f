// One prepared quantizer (contract: QuantizeKernel): checks views, finds the matrix' scale, and runs the
// kernels over bands.
#include "quant.hpp"

#include <fmt/format.h>
#include <tenon/kernels/scales.hpp>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tenon::cpu {
namespace {

using kernels::Bf16;
using kernels::TensorScale;

constexpr const char* kWhere = "quantizer";

/// Keeps the largest; bits of magnitudes order like the values, with NaN above infinity.
void raise(std::atomic<std::uint32_t>& largest, std::uint32_t value) {
  std::uint32_t seen = largest.load(std::memory_order_relaxed);
  while (seen < value && !largest.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

template <class S>
class CpuQuantizeKernel final : public QuantizeKernel {
 public:
  CpuQuantizeKernel(const Kernels& kernels, const QuantizeSpec& spec)
      : ops_([&]() -> const auto& {
          if constexpr (std::is_same_v<S, float>) {
            return kernels.table->quantize_f32;
          } else {
            return kernels.table->quantize_bf16;
          }
        }()),
        spec_(spec),
        bands_(spec),
        packed_(spec.element == ElementFormat::kE2M1) {}

  std::int64_t padded_rows() const override {
    return spec_.rotate && runs_down(spec_) ? blocks_of(spec_.rows, 16) * 16 : spec_.rows;
  }
  std::size_t code_bytes() const override { return static_cast<std::size_t>(padded_rows() * code_stride()); }
  std::size_t scale_bytes() const override { return static_cast<std::size_t>(blocks()) * scale_size(); }
  /// Scales that the caller does not ask for are still needed to measure; then those of lines.
  std::size_t scratch_bytes() const override {
    return rounded_scale_bytes() + static_cast<std::size_t>(lines()) * sizeof(TensorScale);
  }
  bool needs_amax() const override {
    return spec_.scale == BlockScale::kTensor || (spec_.scale == BlockScale::kTwoLevel && !spec_.line_scale);
  }

  float amax(TensorView x, TensorView) override {
    const S* in = input(x);
    std::atomic<std::uint32_t> largest{0};
    for_bands([&](std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
      raise(largest, amax_of(in + row * spec_.columns + column, rows, columns));
    });
    return std::bit_cast<float>(largest.load());
  }

  float run(TensorView x, float amax, const QuantizeDraws& draws, const QuantizeOutput& out,
            TensorView scratch, QuantizeStats* stats) override {
    auto args = arguments();
    args.x = input(x);
    args.key = draws.key.words[0] | std::uint64_t{draws.key.words[1]} << 32;
    args.step = draws.step;
    args.micro = draws.micro;
    args.origin_row = draws.origin_row;
    args.origin_column = draws.origin_column;
    args.values = checked_or_null<Bf16>(out.values, padded_rows() * spec_.columns, kWhere, "values");
    args.codes = bytes(out.codes, code_bytes(), "codes");
    void* scales = scale_memory(out.scales);
    if (stats != nullptr && args.values == nullptr && x.elements() > 0)
      fail_run("device cpu: quantizer: measuring needs the values that quantizing writes, found none");
    if ((stats != nullptr && scales == nullptr) || spec_.line_scale) {
      const std::int64_t given = scratch.data == nullptr ? 0 : scratch.bytes();
      if (static_cast<std::size_t>(given) < scratch_bytes()) {
        fail_run(
            fmt::format("device cpu: quantizer: scratch has {} bytes, expected {}", given, scratch_bytes()));
      }
      if (scales == nullptr) scales = scratch.data;
    }
    set_scales(args, scales);
    if (spec_.line_scale)
      args.lines = find_lines(args.x, static_cast<std::byte*>(scratch.data), out.line_scales);
    else
      args.tensor = matrix_scale(amax);

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
    const bool finite = largest.load() < kernels::kInfinityBits && (!needs_amax() || std::isfinite(amax));
    return finite ? args.tensor.decode : std::numeric_limits<float>::quiet_NaN();
  }

  void decode(TensorView codes, TensorView scales, TensorView values) override {
    auto args = arguments();
    args.codes = bytes(codes, code_bytes(), "codes");
    set_scales(args, scale_memory(scales));
    args.values = checked<Bf16>(values, padded_rows() * spec_.columns, kWhere, "values");
    if (args.codes == nullptr && code_bytes() > 0)
      fail_run("device cpu: quantizer: decoding needs codes, found none");
    if (args.scales == nullptr && scale_size() == 1 && scale_bytes() > 0)
      fail_run("device cpu: quantizer: decoding needs scales, found none");
    for_bands([&](std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
      // The rows that rotation added have codes of their own.
      const std::int64_t end = row + rows == spec_.rows ? padded_rows() : row + rows;
      ops_.dequantize(cut(args, row, column, end - row, columns));
    });
  }

 private:
  using Args = kernels::QuantizeArgs<S>;

  std::int64_t code_stride() const { return packed_ ? blocks_of(spec_.columns, 2) : spec_.columns; }
  std::int64_t scale_stride() const {
    return spec_.scale == BlockScale::kTensor ? 0 : blocks_of(spec_.columns, spec_.block_columns);
  }
  std::int64_t blocks() const {
    return spec_.scale == BlockScale::kTensor ? 0 : blocks_of(spec_.rows, spec_.block_rows) * scale_stride();
  }
  std::size_t scale_size() const { return spec_.scale == BlockScale::kFloat ? sizeof(float) : 1; }
  std::size_t rounded_scale_bytes() const { return (scale_bytes() + 63) / 64 * 64; }
  std::int64_t lines() const {
    if (!spec_.line_scale) return 0;
    return runs_down(spec_) ? spec_.columns : spec_.rows;
  }

  Args arguments() const {
    Args args;
    args.columns = spec_.columns;
    args.stride = spec_.columns;
    args.element = static_cast<kernels::Element>(spec_.element);
    args.scaling = static_cast<kernels::Scaling>(spec_.scale);
    args.power = static_cast<kernels::PowerRule>(spec_.power);
    args.block_rows = spec_.block_rows;
    args.block_columns = spec_.block_columns;
    args.stochastic = spec_.rounding == RoundingMode::kStochastic;
    args.random_bits = spec_.random_bits;
    args.rotate = spec_.rotate;
    args.four_over_six = spec_.four_over_six;
    args.values_stride = spec_.columns;
    args.codes_stride = code_stride();
    args.packed = packed_;
    args.scales_stride = scale_stride();
    return args;
  }

  const S* input(const TensorView& x) const { return checked<S>(x, spec_.rows * spec_.columns, kWhere, "x"); }
  static std::uint8_t* bytes(const TensorView& view, std::size_t expected, const char* name) {
    return checked_or_null<std::uint8_t>(view, static_cast<std::int64_t>(expected), kWhere, name);
  }
  /// Of the caller, or null.
  void* scale_memory(const TensorView& view) const {
    if (scale_size() == 1) return bytes(view, scale_bytes(), "scales");
    return checked_or_null<float>(view, blocks(), kWhere, "scales");
  }
  void set_scales(Args& args, void* memory) const {
    if (blocks() == 0) return;  // a view of no bytes may point at what is somebody else's
    if (scale_size() == 1)
      args.scales = static_cast<std::uint8_t*>(memory);
    else
      args.float_scales = static_cast<float*>(memory);
  }

  TensorScale matrix_scale(float amax) const {
    switch (spec_.scale) {
      case BlockScale::kTensor:
        return kernels::tensor_scale(amax, static_cast<kernels::Element>(spec_.element));
      case BlockScale::kTwoLevel:
        return kernels::two_level_scale(amax,
                                        spec_.four_over_six ? kernels::kScaleTopOfSix : kernels::kScaleTop);
      default:
        return {};
    }
  }

  std::uint32_t amax_of(const S* x, std::int64_t rows, std::int64_t columns) const {
    if (spec_.rotate) return ops_.amax_rotated(x, rows, columns, spec_.columns, runs_down(spec_));
    return ops_.amax(x, rows, columns, spec_.columns);
  }

  const TensorScale* find_lines(const S* x, std::byte* scratch, const TensorView& out) const {
    auto* scales = reinterpret_cast<TensorScale*>(scratch + rounded_scale_bytes());
    float* decode = checked_or_null<float>(out, lines(), kWhere, "line_scales");
    const bool down = runs_down(spec_);
    const std::int64_t length = std::max<std::int64_t>(1, down ? spec_.rows : spec_.columns);
    parallel_for(
        lines(), std::max<std::int64_t>(1, kFlatBlock / length), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t line = begin; line < end; ++line) {
            const std::uint32_t bits =
                down ? amax_of(x + line, spec_.rows, 1) : amax_of(x + line * spec_.columns, 1, spec_.columns);
            scales[line] = matrix_scale(std::bit_cast<float>(bits));
            if (decode != nullptr) decode[line] = scales[line].decode;
          }
        });
    return scales;
  }

  /// body(first row, first column, rows, columns) for every band.
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
  const QuantizeSpec spec_;
  const Bands bands_;
  const bool packed_;
};

}  // namespace

std::unique_ptr<QuantizeKernel> make_quantizer(const Kernels& kernels, const QuantizeSpec& spec) {
  check_quantize_spec(spec);
  if (spec.input == DType::kF32) return std::make_unique<CpuQuantizeKernel<float>>(kernels, spec);
  return std::make_unique<CpuQuantizeKernel<Bf16>>(kernels, spec);
}

}  // namespace tenon::cpu
