// Block-scaled number formats (family QuantOps): quantizers, partial products under scales, binary16.
#include "quant.hpp"

#include "families.hpp"

#include <tenon/kernels/half.hpp>

#include <atomic>
#include <bit>

namespace tenon::cpu {
namespace {

class CpuQuantOps final : public QuantOps {
 public:
  explicit CpuQuantOps(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<QuantizeKernel> quantizer(const QuantizeSpec& spec) override {
    return make_quantizer(kernels_, spec);
  }

  void scale_product(TensorView p, const ProductScales& a, const ProductScales& b, TensorView c,
                     bool accumulate) override {
    const Matrix size = as_matrix(p);
    const float* in = checked<float>(p, size.rows * size.columns, device_arguments::kScaleProduct, "p");
    float* out = checked<float>(c, size.rows * size.columns, device_arguments::kScaleProduct, "c");
    const float* of_rows = device_arguments::checked_scales(a, size.rows, "a");
    const float* of_columns = device_arguments::checked_scales(b, size.columns, "b");
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
