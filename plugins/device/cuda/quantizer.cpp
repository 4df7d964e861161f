// One prepared quantizer (contract: QuantizeKernel): checks views, finds the matrix' scale, and starts the
// kernels.
#include "arguments.hpp"
#include "quant.hpp"

#include <tenon/kernels/cuda/quantize_start.hpp>

#include <cmath>
#include <limits>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;
using kernels::TensorScale;

constexpr const char* kWhere = "quantizer";
/// The block's largest element may land an ulp beyond the largest code; that is not counted as saturation.
constexpr double kSlack = 1 + 0x1p-20;

template <class S>
class CudaQuantizeKernel final : public QuantizeKernel {
 public:
  CudaQuantizeKernel(Queue& queue, const QuantizeSpec& spec)
      : queue_(queue), spec_(spec), packed_(spec.element == ElementFormat::kE2M1) {}

  std::int64_t padded_rows() const override {
    return spec_.rotate && runs_down(spec_) ? blocks_of(spec_.rows, 16) * 16 : spec_.rows;
  }
  std::size_t code_bytes() const override { return static_cast<std::size_t>(padded_rows() * code_stride()); }
  std::size_t scale_bytes() const override { return static_cast<std::size_t>(blocks()) * scale_size(); }
  /// Scales that the caller does not ask for are still needed to measure; then those of lines, then the
  /// largest magnitudes of lines.
  std::size_t scratch_bytes() const override {
    return rounded_scale_bytes() +
           static_cast<std::size_t>(lines()) * (sizeof(TensorScale) + sizeof(std::uint32_t));
  }
  bool needs_amax() const override {
    return spec_.scale == BlockScale::kTensor || (spec_.scale == BlockScale::kTwoLevel && !spec_.line_scale);
  }

  float amax(TensorView x, TensorView) override {
    std::uint32_t* const largest = cleared_word();
    bodies::start_largest(magnitudes(input(x)), largest, launch());
    return std::bit_cast<float>(queue_.read(largest));
  }

  float run(TensorView x, float amax, const QuantizeDraws& draws, const QuantizeOutput& out,
            TensorView scratch, QuantizeStats* stats) override {
    Args args = arguments();
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
      refuse_quantizer("measuring needs the values that quantizing writes, found none");
    if ((stats != nullptr && scales == nullptr) || spec_.line_scale) {
      check_scratch(scratch, scratch_bytes(), kWhere);
      if (scales == nullptr) scales = scratch.data;
    }
    set_scales(args, scales);
    if (spec_.line_scale)
      args.lines = find_lines(args.x, static_cast<std::byte*>(scratch.data), out.line_scales);
    else
      args.tensor = matrix_scale(amax);
    // One scale for the whole matrix looks at no block.
    std::uint32_t* const largest = spec_.scale == BlockScale::kTensor ? nullptr : cleared_word();
    args.magnitude = largest;
    bodies::start_quantize(args, launch());
    const std::uint32_t met = largest == nullptr ? 0 : queue_.read(largest);
    if (stats != nullptr) *stats = measured(args);
    const bool finite = met < kernels::kInfinityBits && (!needs_amax() || std::isfinite(amax));
    return finite ? args.tensor.decode : std::numeric_limits<float>::quiet_NaN();
  }

  void decode(TensorView codes, TensorView scales, TensorView values) override {
    Args args = arguments();
    args.rows = padded_rows();  // the rows that rotation added have codes of their own
    args.codes = bytes(codes, code_bytes(), "codes");
    set_scales(args, scale_memory(scales));
    args.values = checked<Bf16>(values, padded_rows() * spec_.columns, kWhere, "values");
    if (args.codes == nullptr && code_bytes() > 0) refuse_quantizer("decoding needs codes, found none");
    if (args.scales == nullptr && scale_size() == 1 && scale_bytes() > 0)
      refuse_quantizer("decoding needs scales, found none");
    bodies::start_dequantize(args, launch());
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

  auto launch() const {
    return [this](const Grid& grid, const auto& body) { queue_.launch(kWhere, grid, body); };
  }
  std::uint32_t* cleared_word() const {
    auto* const word = queue_.scratch<std::uint32_t>();
    queue_.clear(word, sizeof *word);
    return word;
  }

  Args arguments() const {
    Args args;
    args.rows = spec_.rows;
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

  float top() const { return spec_.four_over_six ? kernels::kScaleTopOfSix : kernels::kScaleTop; }
  TensorScale matrix_scale(float amax) const {
    switch (spec_.scale) {
      case BlockScale::kTensor:
        return kernels::tensor_scale(amax, static_cast<kernels::Element>(spec_.element));
      case BlockScale::kTwoLevel:
        return kernels::two_level_scale(amax, top());
      default:
        return {};
    }
  }

  bodies::Magnitudes<S> magnitudes(const S* x) const {
    return {x, spec_.rows, spec_.columns, spec_.columns, spec_.rotate, spec_.rotate && runs_down(spec_)};
  }

  const TensorScale* find_lines(const S* x, std::byte* scratch, const TensorView& out) const {
    auto* const scales = reinterpret_cast<TensorScale*>(scratch + rounded_scale_bytes());
    auto* const largest = reinterpret_cast<std::uint32_t*>(scales + lines());
    float* const decode = checked_or_null<float>(out, lines(), kWhere, "line_scales");
    bodies::Magnitudes<S> of = magnitudes(x);
    of.down = runs_down(spec_);
    queue_.clear(largest, static_cast<std::size_t>(lines()) * sizeof *largest);
    bodies::start_largest_of_lines(of, largest, launch());
    if (lines() > 0)
      queue_.launch(kWhere, grid_for(lines()), bodies::LineScales{largest, lines(), top(), scales, decode});
    return scales;
  }

  QuantizeStats measured(const Args& args) const {
    auto* const parts = queue_.scratch<bodies::MeasuredPart>();
    static_assert(bodies::kMostParts * sizeof(bodies::MeasuredPart) <= Queue::kScratchBytes);
    bodies::start_measure(args, kernels::layout_of(args.element).largest * kSlack, parts, launch());
    const bodies::MeasuredPart found = queue_.read(parts);
    const auto share = [](auto part, std::int64_t whole) {
      return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    return {.amax = std::bit_cast<float>(found.amax),
            .signal = found.signal,
            .noise = found.noise,
            .relative_error = share(found.relative, found.non_zero),
            .underflow = share(found.underflow, found.non_zero),
            .saturated = share(found.saturated, found.elements),
            .scale_min = found.scale_max == 0 ? 0 : found.scale_min,
            .scale_max = found.scale_max};
  }

  Queue& queue_;
  const QuantizeSpec spec_;
  const bool packed_;
};

}  // namespace

std::unique_ptr<QuantizeKernel> make_quantizer(Queue& queue, const QuantizeSpec& spec) {
  check_quantize_spec(spec);
  if (spec.input == DType::kF32) return std::make_unique<CudaQuantizeKernel<float>>(queue, spec);
  return std::make_unique<CudaQuantizeKernel<Bf16>>(queue, spec);
}

}  // namespace tenon::cuda
