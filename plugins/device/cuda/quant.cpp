// Block-scaled number formats (family QuantOps): quantizers, partial products under scales, binary16.
#include "quant.hpp"

#include "arguments.hpp"
#include "families.hpp"

#include <tenon/kernels/cuda/quant_products.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

class CudaQuantOps final : public QuantOps {
 public:
  explicit CudaQuantOps(Queue& queue) : queue_(queue) {}

  std::unique_ptr<QuantizeKernel> quantizer(const QuantizeSpec& spec) override {
    return make_quantizer(queue_, spec);
  }

  void scale_product(TensorView p, const ProductScales& a, const ProductScales& b, TensorView c,
                     bool accumulate) override {
    const Matrix size = as_matrix(p);
    const std::int64_t n = size.rows * size.columns;
    bodies::ScaleProduct body;
    body.p = checked<float>(p, n, kScaleProduct, "p");
    body.c = checked<float>(c, n, kScaleProduct, "c");
    body.rows = size.rows, body.columns = size.columns;
    body.of_rows = {checked_scales(a, size.rows, "a"), a.lines, a.step};
    body.of_columns = {checked_scales(b, size.columns, "b"), b.lines, b.step};
    body.accumulate = accumulate;
    if (n > 0) queue_.launch(kScaleProduct, grid_for(body.rows * body.runs()), body);
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
