// Block-scaled number formats (family QuantOps): quantizers, partial products under scales, binary16.
#include "common.hpp"
#include "device_common/quantized.hpp"

#include <tenon/kernels/cuda/quant_products.hpp>
#include <tenon/kernels/cuda/quantize_start.hpp>

#include <cmath>
#include <limits>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;
using device_arguments::runs_down;
using kernels::TensorScale;

// One prepared quantizer (contract: QuantizeKernel): checks views, finds the scale of the matrix, and starts
// the kernels.

constexpr const char* kWhere = device_arguments::kQuantizer;
/// The block's largest element may be an ulp beyond the largest code; that is not counted as saturation.
constexpr double kSlack = 1 + 0x1p-20;

template <class S>
class CudaQuantizeKernel final : public device_arguments::QuantizerShape<S> {
 public:
  CudaQuantizeKernel(Queue& queue, const QuantizeSpec& spec) : Shape(spec), queue_(queue) {}

  /// Scales are needed for measurement even if the caller does not ask for them; then those of lines, then
  /// the largest magnitudes of lines.
  std::size_t scratch_bytes() const override {
    return rounded_scale_bytes() +
           static_cast<std::size_t>(lines()) * (sizeof(TensorScale) + sizeof(std::uint32_t));
  }
  float amax(TensorView x, TensorView) override {
    std::uint32_t* const largest = cleared_word();
    bodies::start_largest(magnitudes(this->input(x)), largest, launch());
    return std::bit_cast<float>(queue_.read(largest));
  }

  float run(TensorView x, float amax, const QuantizeDraws& draws, const QuantizeOutput& out,
            TensorView scratch, QuantizeStats* stats) override {
    void* scales = nullptr;
    Args args = this->quantizing(x, draws, out, scratch, stats != nullptr, scales);
    if (spec_.line_scale)
      args.lines = find_lines(args.x, static_cast<std::byte*>(scratch.data), out.line_scales);
    else
      args.tensor = this->matrix_scale(amax);
    // A single scale for the whole matrix needs no block statistics.
    std::uint32_t* const largest = spec_.scale == BlockScale::kTensor ? nullptr : cleared_word();
    args.magnitude = largest;
    bodies::start_quantize(args, launch());
    const std::uint32_t met = largest == nullptr ? 0 : queue_.read(largest);
    if (stats != nullptr) *stats = measured(args);
    const bool finite = met < kernels::kInfinityBits && (!this->needs_amax() || std::isfinite(amax));
    return finite ? args.tensor.decode : std::numeric_limits<float>::quiet_NaN();
  }

  void decode(TensorView codes, TensorView scales, TensorView values) override {
    Args args = this->decoding(codes, scales, values);
    args.rows = padded_rows();  // the rows that the rotation added have codes of their own
    bodies::start_dequantize(args, launch());
  }

 private:
  using Shape = device_arguments::QuantizerShape<S>;
  using Shape::spec_, Shape::lines, Shape::padded_rows, Shape::rounded_scale_bytes;
  using typename Shape::Args;

  auto launch() const {
    return [this](const Grid& grid, const auto& body) { queue_.launch(kWhere, grid, body); };
  }
  std::uint32_t* cleared_word() const {
    auto* const word = queue_.scratch<std::uint32_t>();
    queue_.clear(word, sizeof *word);
    return word;
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
    queue_.clear(largest, lines() * sizeof *largest);
    bodies::start_largest_of_lines(of, largest, launch());
    if (lines() > 0)
      queue_.launch(kWhere, grid_for(lines()),
                    bodies::LineScales{largest, lines(), this->top(), scales, decode});
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
};

std::unique_ptr<QuantizeKernel> make_quantizer(Queue& queue, const QuantizeSpec& spec) {
  check_quantize_spec(spec);
  if (spec.input == DType::kF32) return std::make_unique<CudaQuantizeKernel<float>>(queue, spec);
  return std::make_unique<CudaQuantizeKernel<Bf16>>(queue, spec);
}

class CudaQuantOps final : public QuantOps {
 public:
  explicit CudaQuantOps(Queue& queue) : queue_(queue) {}

  std::unique_ptr<QuantizeKernel> quantizer(const QuantizeSpec& spec) override {
    return make_quantizer(queue_, spec);
  }

  void scale_product(TensorView p, const ProductScales& a, const ProductScales& b, TensorView c,
                     bool accumulate) override {
    const device_arguments::ScaleProduct product(p, a, b, c);
    bodies::ScaleProduct body;
    body.p = product.p, body.c = product.c;
    body.rows = product.size.rows, body.columns = product.size.columns;
    body.of_rows = {product.of_rows, a.lines, a.step};
    body.of_columns = {product.of_columns, b.lines, b.step};
    body.accumulate = accumulate;
    if (body.rows * body.columns > 0) queue_.launch(kScaleProduct, grid_for(body.rows * body.runs()), body);
  }

  HalfCount round_to_f16(TensorView x, TensorView y) override {
    const std::int64_t n = x.elements();
    const auto* const in = checked<float>(x, n, kRoundToHalf, "x");
    auto* const out = checked<float>(y, n, kRoundToHalf, "y");
    if (n == 0) return {};
    auto* const counts = queue_.scratch<bodies::HalfCounts>();
    queue_.clear(counts, sizeof *counts);
    queue_.launch(kRoundToHalf, grid_for(n, bodies::kThreads * sizeof *counts),
                  bodies::RoundToHalf{in, out, n, counts});
    const bodies::HalfCounts found = queue_.read(counts);
    return {found.overflow, found.underflow};
  }

 private:
  static constexpr const char* kScaleProduct = device_arguments::kScaleProduct;
  static constexpr const char* kRoundToHalf = "round_to_f16";

  Queue& queue_;
};

}  // namespace

std::unique_ptr<QuantOps> make_quant_ops(Queue& queue) {
  return std::make_unique<CudaQuantOps>(queue);
}

}  // namespace tenon::cuda
