// Products of codes on devices that have them: the same as products of the decoded values, so results differ
// by the order of sums in f32, and by the bits that a GPU's units drop. Memory, scratch and refusals through
// the contract.
#include "device_test.hpp"

#include <tenon/ops/dense.hpp>
#include <tenon/ops/quant.hpp>

#include <cmath>
#include <limits>

namespace tenon::testing::scaled_test {
namespace {

struct Format {
  const char* name;
  ElementFormat element;
  BlockScale scale;
  std::int64_t along, across;
};

constexpr Format kFormats[] = {
    {"fp8", ElementFormat::kE4M3, BlockScale::kTensor, 1, 1},
    {"mxfp8", ElementFormat::kE4M3, BlockScale::kPower, 32, 1},
    {"fp8 in squares", ElementFormat::kE4M3, BlockScale::kPower, 128, 128},
    {"nvfp4", ElementFormat::kE2M1, BlockScale::kTwoLevel, 16, 1},
    {"nvfp4 in squares", ElementFormat::kE2M1, BlockScale::kTwoLevel, 16, 16},
};

/// A matrix, and the output of the device's quantizer for it.
struct Rounded {
  Rounded(Device& device, const Format& format, std::int64_t rows, std::int64_t columns, bool down,
          const std::vector<double>& numbers)
      : operand{format.element, format.scale, down ? format.along : format.across,
                down ? format.across : format.along},
        kernel(device.family<QuantOps>().quantizer({.rows = rows,
                                                    .columns = columns,
                                                    .element = format.element,
                                                    .scale = format.scale,
                                                    .block_rows = operand.block_rows,
                                                    .block_columns = operand.block_columns})),
        values(device, {rows, columns}, DType::kBF16),
        codes(device, {std::int64_t(kernel->code_bytes())}, DType::kU8),
        scales(device, {std::int64_t(kernel->scale_bytes())}, DType::kU8) {
    const Owned x(device, {rows, columns}, DType::kBF16, numbers),
        scratch(device, {std::int64_t(kernel->scratch_bytes())}, DType::kU8);
    const float amax = kernel->needs_amax() ? kernel->amax(x, scratch) : 0;
    scale = kernel->run(x, amax, {}, {values, codes, scales, {}}, scratch, nullptr);
  }
  ScaledMatrix matrix() const {
    return {codes, operand.scale == BlockScale::kTensor ? TensorView{} : TensorView(scales)};
  }

  ScaledOperand operand;
  std::unique_ptr<QuantizeKernel> kernel;
  Owned values, codes, scales;
  float scale = 1;
};

class ScaledProductsOfTheDevice : public ::testing::Test {
 protected:
  ScaledProducts* family() { return static_cast<ScaledProducts*>(bench_.device->query(ScaledProducts::kId)); }
  TestedDevice bench_;
  Device& device_ = *bench_.device;
};

TEST_F(ScaledProductsOfTheDevice, AreThoseOfTheValues) {
  if (family() == nullptr) {
    EXPECT_EQ(device_.space(), MemorySpace::kHost) << "units for codes belong to devices of their own";
    return;
  }
  constexpr std::int64_t kM = 37, kN = 48, kK = 150;
  int tried = 0;
  for (const Format& format : kFormats)
    for (const bool down_a : {false, true})
      for (const bool down_b : {false, true})
        for (const bool infinite : {false, true}) {
          const Format of_a{format.name, format.element, format.scale, format.along, 1};
          auto numbers_a = numbers(kM * kK, "a", DType::kBF16);
          if (infinite) numbers_a[17] = std::numeric_limits<double>::infinity();
          const Rounded a(device_, of_a, down_a ? kK : kM, down_a ? kM : kK, down_a, numbers_a),
              b(device_, format, down_b ? kK : kN, down_b ? kN : kK, down_b,
                numbers(kN * kK, "b", DType::kBF16));
          ScaledProductSpec spec;
          spec.product = {.m = kM, .n = kN, .k = kK, .transpose_a = down_a, .transpose_b = !down_b};
          spec.product.bias = spec.product.alpha = true;
          spec.a = a.operand, spec.b = b.operand;
          // A GPU has units for some of these.
          if (!family()->refusal(spec).empty()) continue;
          ++tried;
          GemmSpec plain = spec.product;
          plain.a = plain.b = DType::kBF16;
          const auto product = family()->prepare(spec);
          const auto gemm = device_.family<Blas>().gemm(plain);
          const Owned bias(device_, {kN}, DType::kF32, numbers(kN, "bias", DType::kF32)),
              found(device_, {kM, kN}, DType::kF32), expected(device_, {kM, kN}, DType::kF32),
              scratch(device_, {std::int64_t(product->scratch_bytes())}, DType::kU8),
              room(device_, {std::int64_t(gemm->scratch_bytes())}, DType::kU8);
          product->run(a.matrix(), b.matrix(), found, bias, a.scale * b.scale, scratch);
          gemm->run(a.values, b.values, expected, bias, a.scale * b.scale, room);
          const auto own = found.values(), values = expected.values(), x = a.values.values(),
                     y = b.values.values();
          for (std::int64_t i = 0; i < kM; ++i)
            for (std::int64_t j = 0; j < kN; ++j) {
              const std::size_t at = i * kN + j;
              if (infinite) {
                EXPECT_TRUE(std::isnan(own[at])) << format.name;
                continue;
              }
              // Two sums of k terms in some order, each rounded k times, then alpha and the bias.
              double size = 0, sum = 0, largest = 0;
              for (std::int64_t l = 0; l < kK; ++l) {
                const double product =
                    x[down_a ? l * kM + i : i * kK + l] * y[down_b ? l * kN + j : j * kK + l];
                size += std::abs(product), sum += product;
                largest = std::max({largest, std::abs(product), std::abs(sum)});
              }
              const double alpha = std::abs(double{a.scale} * double{b.scale});
              EXPECT_NEAR(own[at], values[at],
                          2 * (kK + 3) * 0x1p-24 * (size * alpha + std::abs(values[at])) +
                              unit_error(kK) * largest * alpha)
                  << format.name;
            }
        }
  if (tested_device() == "cuda_emulated") {
    EXPECT_EQ(tried, 5 * 8);
  }
}

TEST_F(ScaledProductsOfTheDevice, RefuseWhatDoesNotFit) {
  if (family() == nullptr) return;
  ScaledProductSpec spec;
  spec.product = {.m = 4, .n = 16, .k = 32, .transpose_b = true};
  spec.b = {ElementFormat::kE4M3, BlockScale::kPower, 1, 32};
  EXPECT_EQ(family()->refusal(spec), "both operands must have scales of one kind");
  try {
    family()->prepare(spec);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), device_says("scaled product: both operands must have scales of one kind"));
  }
  spec.b = spec.a = {ElementFormat::kE4M3, BlockScale::kTensor};
  if (!family()->refusal(spec).empty()) return;
  const auto product = family()->prepare(spec);
  const Owned a(device_, {4 * 32}, DType::kU8), b(device_, {16 * 32}, DType::kU8),
      c(device_, {4, 16}, DType::kF32),
      scratch(device_, {std::int64_t(product->scratch_bytes())}, DType::kU8);
  product->run({a, {}}, {b, {}}, c, {}, 1, scratch);
  EXPECT_THROW(product->run({b, {}}, {b, {}}, c, {}, 1, scratch), Error);
  EXPECT_THROW(product->run({a, {}}, {b, {}}, a, {}, 1, scratch), Error);
  EXPECT_THROW(product->run({a, {}}, {b, {}}, c, {}, 1, {}), Error);
}

}  // namespace
}  // namespace tenon::testing::scaled_test
