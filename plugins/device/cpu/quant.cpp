// Block-scaled number formats (family QuantOps): quantizers, partial products under scales, binary16.
#include "quant.hpp"

#include "families.hpp"
#include "mor.hpp"

#include <fmt/format.h>

#include <atomic>
#include <bit>

namespace tenon::cpu {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffffu;
constexpr std::uint32_t kInfinity = 0x7f800000u;

/// x rounded to binary16, as float bits. Below 2^-14 adding 1/2 leaves multiples of 2^-24, the subnormals'
/// step, in the last place; above, half a unit of the tenth mantissa bit is added, less one for ties to even.
std::uint32_t half_bits(std::uint32_t bits) {
  const std::uint32_t sign = bits & ~kMagnitude, magnitude = bits & kMagnitude;
  const float small = (std::bit_cast<float>(magnitude) + 0.5f) - 0.5f;
  const std::uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u)) & ~0x1fffu;
  std::uint32_t result = magnitude < 0x38800000u ? std::bit_cast<std::uint32_t>(small) : normal;
  result = result >= 0x47800000u ? kInfinity : result;  // 65536
  result = magnitude > kInfinity ? magnitude | 0x00400000u : result;
  return sign | result;
}

class CpuQuantOps final : public QuantOps {
 public:
  explicit CpuQuantOps(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<QuantizeKernel> quantizer(const QuantizeSpec& spec) override {
    return make_quantizer(kernels_, spec);
  }

  std::unique_ptr<MorKernel> mor(const MorSpec& spec) override { return make_mor(spec); }

  void scale_product(TensorView p, TensorView a_scales, std::int64_t a_rows, TensorView b_scales,
                     std::int64_t b_rows, TensorView c, bool accumulate) override {
    constexpr const char* kWhere = "scale_product";
    const Matrix size = as_matrix(p);
    if (a_rows < 1 || b_rows < 1) {
      fail_run(fmt::format("device cpu: scale_product: a scale belongs to at least one row, found {} and {}",
                           a_rows, b_rows));
    }
    const float* in = checked<float>(p, size.rows * size.columns, kWhere, "p");
    const float* a = checked<float>(a_scales, blocks_of(size.rows, a_rows), kWhere, "a_scales");
    const float* b = checked<float>(b_scales, blocks_of(size.columns, b_rows), kWhere, "b_scales");
    float* out = checked<float>(c, size.rows * size.columns, kWhere, "c");
    parallel_for(size.rows, row_block(size.columns), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float* from = in + i * size.columns;
        float* to = out + i * size.columns;
        const float a_scale = a[i / a_rows];
        for (std::int64_t j = 0; j < size.columns;) {
          const std::int64_t stop = std::min(size.columns, (j / b_rows + 1) * b_rows);
          const float scale = a_scale * b[j / b_rows];
          if (accumulate)
            for (; j < stop; ++j) to[j] += scale * from[j];
          else
            for (; j < stop; ++j) to[j] = scale * from[j];
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
        const std::uint32_t rounded = half_bits(bits);
        over += (rounded & kMagnitude) == kInfinity && (bits & kMagnitude) != kInfinity ? 1 : 0;
        under += (rounded & kMagnitude) == 0 && (bits & kMagnitude) != 0 ? 1 : 0;
        out[i] = std::bit_cast<float>(rounded);
      }
      overflow += over;
      underflow += under;
    });
    return {overflow, underflow};
  }

 private:
  Kernels kernels_;
};

}  // namespace

std::unique_ptr<QuantOps> make_quant_ops(const Kernels& kernels) {
  return std::make_unique<CpuQuantOps>(kernels);
}

}  // namespace tenon::cpu
