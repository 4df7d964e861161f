// One prepared quantizer (contract: QuantizeKernel): checks views, finds the scale of the matrix, and runs
// the kernels over bands.
#include "device_common/quantizers.hpp"
#include "quant.hpp"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tenon::cpu {
namespace {

using kernels::Bf16;
using kernels::TensorScale;

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
  std::size_t scratch_bytes() const override {
    return rounded_scale_bytes() + static_cast<std::size_t>(lines()) * sizeof(TensorScale);
  }
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

}  // namespace

std::unique_ptr<QuantizeKernel> make_quantizer(const Kernels& kernels, const QuantizeSpec& spec) {
  device_quantizers::check_quantizer(spec);
  if (spec.input == DType::kF32) return std::make_unique<CpuQuantizeKernel<float>>(kernels, spec);
  return std::make_unique<CpuQuantizeKernel<Bf16>>(kernels, spec);
}

}  // namespace tenon::cpu
