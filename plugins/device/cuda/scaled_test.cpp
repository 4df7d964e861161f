// Products of codes by cuBLASLt, on a fake of it (cublaslt_fake.cpp) that reads tiles of scales by itself,
// beside those of this tree's own kernels: equal bits, and both within a derived bound of a plain loop over
// what the quantizer stored. Also the refusals, and whose words they use.
#include "scaled.hpp"

#include "cublaslt_fake.hpp"
#include "gemm_test.hpp"

#include <tenon/error.hpp>
#include <tenon/kernels/formats.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

namespace tenon::cuda {
namespace {

using kernels::Element;
using ::testing::HasSubstr;

/// One operand as a quantizer stores it, with codes below the largest and scales around one.
struct Stored {
  Stored(Queue& queue, const ScaledOperand& o, std::int64_t rows, std::int64_t columns, int seed)
      : operand(o), rows_(rows), columns_(columns), queue_(queue) {
    const bool fours = o.element == ElementFormat::kE2M1;
    stride_ = fours ? (columns + 1) / 2 : columns;
    codes_.resize(rows * stride_);
    for (std::size_t i = 0; i < codes_.size(); ++i)
      codes_[i] = static_cast<std::uint8_t>((i * 37 + static_cast<std::size_t>(seed)) % (fours ? 256 : 57) |
                                            (!fours && i % 3 == 0 ? 0x80 : 0));
    if (o.scale != BlockScale::kTensor) {
      across_ = (columns + o.block_columns - 1) / o.block_columns;
      const std::int64_t blocks = (rows + o.block_rows - 1) / o.block_rows * across_;
      for (std::int64_t i = 0; i < blocks; ++i) {
        floats_.push_back(0.25f + static_cast<float>(i % 7));
        bits_.push_back(static_cast<std::uint8_t>(o.scale == BlockScale::kPower ? 124 + (i * 5 + seed) % 6
                                                                                : 40 + (i * 11 + seed) % 40));
      }
    }
    matrix.codes = put(codes_.data(), static_cast<std::int64_t>(codes_.size()), DType::kU8);
    if (o.scale == BlockScale::kFloat)
      matrix.scales = put(floats_.data(), static_cast<std::int64_t>(floats_.size()), DType::kF32);
    else if (!bits_.empty())
      matrix.scales = put(bits_.data(), static_cast<std::int64_t>(bits_.size()), DType::kU8);
  }
  ~Stored() {
    for (void* memory : owned_) queue_.release(memory);
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;

  /// The value by definition.
  double at(std::int64_t row, std::int64_t column) const {
    const bool fours = operand.element == ElementFormat::kE2M1;
    const std::uint8_t byte = codes_[row * stride_ + (fours ? column / 2 : column)];
    const auto code = static_cast<std::uint8_t>(!fours ? byte : column % 2 == 0 ? byte % 16 : byte / 16);
    double scale = 1;
    if (operand.scale != BlockScale::kTensor) {
      const std::size_t block = row / operand.block_rows * across_ + column / operand.block_columns;
      scale = operand.scale == BlockScale::kFloat   ? floats_[block]
              : operand.scale == BlockScale::kPower ? std::ldexp(1.0, bits_[block] - 127)
                                                    : kernels::decode(bits_[block], Element::kE4M3);
    }
    return kernels::decode(code, static_cast<Element>(operand.element)) * scale;
  }

  ScaledOperand operand;
  ScaledMatrix matrix;

 private:
  TensorView put(const void* from, std::int64_t count, DType dtype) {
    const std::size_t bytes = dtype_bytes(dtype, count);
    owned_.push_back(queue_.allocate(bytes));
    queue_.copy(from, MemorySpace::kHost, owned_.back(), MemorySpace::kCuda, bytes);
    return {owned_.back(), Shape{count}, dtype, MemorySpace::kCuda};
  }

  std::int64_t rows_, columns_, stride_ = 0, across_ = 0;
  Queue& queue_;
  std::vector<std::uint8_t> codes_, bits_;
  std::vector<float> floats_;
  std::vector<void*> owned_;
};

struct Pair {
  const char* name;
  ElementFormat a, b;
  BlockScale scale;
  std::int64_t along, across_b;  ///< extents of blocks; those of A belong to one row
};

constexpr auto kE2M1 = ElementFormat::kE2M1, kE4M3 = ElementFormat::kE4M3, kE5M2 = ElementFormat::kE5M2;
constexpr Pair kPairs[] = {
    {"fp8 per tensor", kE4M3, kE5M2, BlockScale::kTensor, 1, 1},
    {"fp8 per row", kE4M3, kE4M3, BlockScale::kFloat, 1 << 20, 1},
    {"mxfp8", kE4M3, kE4M3, BlockScale::kPower, 32, 1},
    {"mxfp8, wide gradients", kE5M2, kE4M3, BlockScale::kPower, 32, 1},
    {"fp8 in blocks of 128", kE4M3, kE4M3, BlockScale::kPower, 128, 128},
    {"nvfp4", kE2M1, kE2M1, BlockScale::kTwoLevel, 16, 1},
    {"nvfp4, square weights", kE2M1, kE2M1, BlockScale::kTwoLevel, 16, 16},
};

class ScaledProductsTest : public ::testing::TestWithParam<LaunchOrder> {
 protected:
  ScaledProductsTest()
      : queue_({.order = GetParam(), .guard = false}), library_(ScaledLibrary::open(queue_, reason_)) {
    fake_cublaslt() = {};
  }

  static ScaledProductSpec spec_of(const Pair& pair, std::int64_t m, std::int64_t n, std::int64_t k,
                                   bool down_a, bool down_b) {
    ScaledProductSpec spec;
    spec.product = {.m = m, .n = n, .k = k, .transpose_a = down_a, .transpose_b = !down_b, .alpha = true};
    spec.a = {pair.a, pair.scale, down_a ? pair.along : 1, down_a ? 1 : pair.along};
    spec.b = {pair.b, pair.scale, down_b ? pair.along : pair.across_b, down_b ? pair.across_b : pair.along};
    return spec;
  }

  std::vector<std::byte> run(ScaledProduct& product, const ScaledProductSpec& spec, const Stored& a,
                             const Stored& b, std::int64_t skip = 0) {
    const GemmSpec& p = spec.product;
    const Numbers c(queue_, p.m * p.n, p.c, 3, skip), bias(queue_, p.n, DType::kF32, 4);
    // An unaligned place, as within a plan, with old contents.
    const Numbers scratch(queue_, static_cast<std::int64_t>(product.scratch_bytes()), DType::kU8, 0, 64);
    product.run(a.matrix, b.matrix, c.view(), p.bias ? bias.view() : TensorView{}, 0.75f, scratch.view());
    return c.bytes();
  }

  std::string reason_;
  Queue queue_;
  std::unique_ptr<ScaledLibrary> library_;
};

TEST_P(ScaledProductsTest, AreTheSumsOfWhatWasStored) {
  ASSERT_NE(library_, nullptr) << reason_;
  for (const Pair& pair : kPairs)
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{5, 16, 33}, {130, 48, 64}, {33, 144, 270}})
      for (const bool down_a : {false, true})
        for (const bool down_b : {false, true}) {
          const ScaledProductSpec spec = spec_of(pair, m, n, k, down_a, down_b);
          ASSERT_EQ(scaled_refusal(spec), "") << pair.name;
          const Stored a(queue_, spec.a, down_a ? k : m, down_a ? m : k, 1),
              b(queue_, spec.b, down_b ? k : n, down_b ? n : k, 2);
          const auto own = run(*make_own_scaled(queue_, spec), spec, a, b);
          const auto product = library_->product(spec, reason_, 100);
          ASSERT_NE(product, nullptr) << pair.name << ": " << reason_;
          EXPECT_TRUE(run(*product, spec, a, b) == own) << pair.name << " " << m << "x" << n << "x" << k;
          // Each of k sums, and alpha, two scales and the product of these, round once: relative to the sum
          // of magnitudes.
          int wrong = 0;
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
              double sum = 0, size = 0;
              for (std::int64_t l = 0; l < k; ++l) {
                const double term =
                    a.at(down_a ? l : i, down_a ? i : l) * b.at(down_b ? l : j, down_b ? j : l);
                sum += term, size += std::abs(term);
              }
              float found = 0;
              std::memcpy(&found, own.data() + (i * n + j) * 4, sizeof found);
              wrong +=
                  !(std::abs(found - 0.75 * sum) <= (static_cast<double>(k) + 4) * 0x1p-24 * 0.75 * size);
            }
          EXPECT_EQ(wrong, 0) << pair.name << " " << m << "x" << n << "x" << k << " " << down_a << down_b;
        }
  library_.reset();
  EXPECT_EQ(fake_cublaslt().alive, 0);
}

TEST_P(ScaledProductsTest, TakeBiasMapOldValuesAndRoundOnce) {
  for (const Pair& pair : kPairs)
    for (const DType c : {DType::kF32, DType::kBF16})
      for (int bits = 0; bits < 8; ++bits) {
        ScaledProductSpec spec = spec_of(pair, 9, 32, 70, (bits & 1) != 0, false);
        spec.product.c = c;
        spec.product.accumulate = (bits & 2) != 0, spec.product.bias = (bits & 4) != 0;
        spec.product.epilogue = bits > 5 ? Epilogue::kGeluTanh : Epilogue::kNone;
        const Stored a(queue_, spec.a, (bits & 1) != 0 ? 70 : 9, (bits & 1) != 0 ? 9 : 70, 1),
            b(queue_, spec.b, 32, 70, 2);
        const auto product = library_->product(spec, reason_, 100);
        ASSERT_NE(product, nullptr) << reason_;
        EXPECT_TRUE(run(*product, spec, a, b) == run(*make_own_scaled(queue_, spec), spec, a, b))
            << pair.name << " into " << dtype_name(c) << " bits " << bits;
      }
}

TEST_P(ScaledProductsTest, KeepTheLibrarysWords) {
  const ScaledProductSpec spec = spec_of(kPairs[5], 8, 16, 32, false, false);
  const Stored a(queue_, spec.a, 8, 32, 1), b(queue_, spec.b, 16, 32, 2);
  const auto product = library_->product(spec, reason_, 100);
  const auto message = [&](std::int64_t skip) -> std::string {
    try {
      run(*product, spec, a, b, skip);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(message(1), HasSubstr("C must begin at a multiple of 16 bytes"));
  fake_cublaslt().fails = true;
  EXPECT_THAT(message(0), HasSubstr("cublasLtMatmul: did not work (NAME_OF_FAILURE)"));
  fake_cublaslt().declines = true;
  EXPECT_EQ(library_->product(spec, reason_, 100), nullptr);
  EXPECT_EQ(reason_, "cublasLtMatmulAlgoGetHeuristic: has no such thing (NAME_OF_UNSUPPORTED)");
}

TEST_P(ScaledProductsTest, SayWhatThereAreNoUnitsFor) {
  const auto reason = [](ScaledOperand a, ScaledOperand b,
                         GemmSpec p = {.m = 4, .n = 16, .k = 64, .transpose_b = true}) {
    return scaled_refusal({p, a, b});
  };
  const ScaledOperand nvfp4, mxfp8{kE4M3, BlockScale::kPower, 1, 32}, e5m2{kE5M2, BlockScale::kTensor};
  EXPECT_EQ(reason(nvfp4, nvfp4), "");
  EXPECT_EQ(reason(nvfp4, mxfp8), "both operands must have scales of one kind");
  EXPECT_EQ(reason(e5m2, e5m2), "one of both operands must be e4m3, found e5m2 twice");
  EXPECT_THAT(reason({kE2M1, BlockScale::kPower, 1, 32}, mxfp8),
              HasSubstr("A is e2m1 in blocks of 1x32: powers of two as scales go with e4m3 and e5m2"));
  EXPECT_THAT(reason(nvfp4, {kE2M1, BlockScale::kTwoLevel, 16, 1}),
              HasSubstr("B is e2m1 in blocks of 16x1: blocks must have 16 elements along"));
  EXPECT_THAT(reason({kE4M3, BlockScale::kFloat, 1, 32}, mxfp8), HasSubstr("must belong to whole lines"));
  EXPECT_THAT(reason({ElementFormat::kE3M2, BlockScale::kPower, 1, 32}, mxfp8), HasSubstr("A is e3m2"));
  EXPECT_THAT(reason(nvfp4, nvfp4, {.m = 0, .n = 16, .k = 64, .transpose_b = true}), HasSubstr("empty"));
  EXPECT_THAT(reason(nvfp4, nvfp4, {.m = 4, .n = 16, .k = 64, .batch = 2}), HasSubstr("no batch"));
  EXPECT_EQ(library_->product(spec_of(kPairs[5], 8, 24, 32, false, false), reason_, 100), nullptr);
  EXPECT_THAT(reason_, HasSubstr("rows of a multiple of 16 elements, found n = 24"));
  EXPECT_EQ(library_->product(spec_of(kPairs[5], 8, 16, 32, false, false), reason_, 90), nullptr);
  EXPECT_EQ(reason_, "sm_90 has no units for block scales; sm_100 is the first that does");
  EXPECT_NE(library_->product(spec_of(kPairs[0], 8, 16, 32, false, false), reason_, 90), nullptr) << reason_;
  EXPECT_EQ(fake_cublaslt().asked, 1);
}

INSTANTIATE_TEST_SUITE_P(Orders, ScaledProductsTest,
                         ::testing::Values(LaunchOrder::kAscending, LaunchOrder::kDescending),
                         [](const auto& info) {
                           return info.param == LaunchOrder::kAscending ? "ascending" : "descending";
                         });

}  // namespace
}  // namespace tenon::cuda
