// Products by cuBLASLt, on a fake of it (cublaslt_fake.cpp): the arguments that are passed, what is left to
// our own kernels, and the effects of failures. The fake's chains over k are those of our kernels, so the
// bits agree.
#include "gemm.hpp"

#include "cublaslt_fake.hpp"
#include "gemm_test.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

namespace tenon::cuda {
namespace {

using ::testing::HasSubstr;

constexpr DType kF32 = DType::kF32, kF64 = DType::kF64, kBF16 = DType::kBF16;

class CublasLtGemms : public ::testing::Test {
 protected:
  CublasLtGemms() : queue_({.guard = false}), library_(CublasLt::open(queue_, reason_)) {
    fake_cublaslt() = {};
  }

  struct Operands {
    Numbers a, b, c, bias;
    Operands(Queue& queue, const GemmSpec& s, std::int64_t skip = 0)
        : a(queue, s.batch * s.m * s.k, s.a, 1, skip),
          b(queue, s.batch * s.k * s.n, s.b, 2),
          c(queue, s.batch * s.m * s.n, s.c, 3),
          bias(queue, s.n, s.a == kF64 ? kF64 : kF32, 4) {}
  };

  std::vector<std::byte> run(Gemm& gemm, const GemmSpec& spec, std::int64_t skip = 0) {
    const Operands o(queue_, spec, skip);
    // An unaligned place, as within a plan.
    const Numbers scratch(queue_, static_cast<std::int64_t>(gemm.scratch_bytes()), DType::kU8, 0, 64);
    gemm.run(o.a.view(), o.b.view(), o.c.view(), spec.bias ? o.bias.view() : TensorView{}, 0.75f,
             scratch.view());
    return o.c.bytes();
  }

  std::string reason_;
  Queue queue_;
  std::unique_ptr<CublasLt> library_;
};

TEST_F(CublasLtGemms, GiveTheBitsOfOurKernels) {
  ASSERT_NE(library_, nullptr) << reason_;
  EXPECT_EQ(library_->version(), "13.2.3");
  const std::tuple<DType, DType, DType> dtypes[] = {{kF32, kF32, kF32},
                                                    {kF64, kF64, kF64},
                                                    {kBF16, kBF16, kBF16},
                                                    {kBF16, kBF16, kF32},
                                                    {kF32, kF32, kBF16}};
  int products = 0;
  for (const auto& [a, b, c] : dtypes)
    for (int bits = 0; bits < 64; ++bits)
      for (int epilogue = 0; epilogue < 6; epilogue += 1 + bits % 3) {
        GemmSpec spec{.m = 7, .n = 13, .k = bits % 2 != 0 ? 40 : 11, .batch = (bits & 32) != 0 ? 3 : 1};
        spec.transpose_a = (bits & 1) != 0, spec.transpose_b = (bits & 2) != 0;
        spec.accumulate = (bits & 4) != 0, spec.bias = (bits & 8) != 0, spec.alpha = (bits & 16) != 0;
        spec.a = a, spec.b = b, spec.c = c;
        spec.epilogue = static_cast<Epilogue>(epilogue);
        const auto gemm = library_->gemm(spec, reason_);
        ASSERT_NE(gemm, nullptr) << reason_;
        const auto found = run(*gemm, spec);
        EXPECT_EQ(fake_cublaslt().multiplied, ++products);
        EXPECT_TRUE(found == run(*make_kernel_gemm(queue_, spec), spec))
            << dtype_name(a) << " into " << dtype_name(c) << " bits " << bits << " epilogue " << epilogue;
      }
  library_.reset();
  EXPECT_EQ(fake_cublaslt().alive, 0);
}

TEST_F(CublasLtGemms, RoundNoOperandsUnlessTf32IsAskedFor) {
  GemmSpec spec{.m = 4, .n = 5, .k = 6};
  run(*library_->gemm(spec, reason_), spec);
  EXPECT_EQ(fake_cublaslt().rounded, 0);
  Queue fast({.tf32 = true, .guard = false});
  const auto library = CublasLt::open(fast, reason_);
  for (const DType dtype : {kF32, kF64, kBF16}) {
    spec.a = spec.b = spec.c = dtype;
    const auto gemm = library->gemm(spec, reason_);
    ASSERT_NE(gemm, nullptr) << reason_;
    const Operands o(fast, spec);
    const Numbers scratch(fast, static_cast<std::int64_t>(gemm->scratch_bytes()), DType::kU8, 0);
    gemm->run(o.a.view(), o.b.view(), o.c.view(), {}, 1, scratch.view());
    EXPECT_EQ(fake_cublaslt().rounded, 1) << dtype_name(dtype);
  }
}

TEST_F(CublasLtGemms, AreAskedForOnce) {
  GemmSpec spec{.m = 4, .n = 5, .k = 6, .bias = true};
  for (int i = 0; i < 3; ++i) EXPECT_NE(library_->gemm(spec, reason_), nullptr);
  EXPECT_EQ(fake_cublaslt().asked, 1);
  spec.alpha = true;
  EXPECT_NE(library_->gemm(spec, reason_), nullptr);
  EXPECT_EQ(fake_cublaslt().asked, 2);
}

TEST_F(CublasLtGemms, LeaveCrookedPointersToOurKernels) {
  const GemmSpec spec{.m = 4, .n = 5, .k = 40, .a = kBF16, .b = kBF16, .c = kF32};
  const auto gemm = library_->gemm(spec, reason_);
  const auto found = run(*gemm, spec, 3);
  EXPECT_EQ(fake_cublaslt().multiplied, 0);
  EXPECT_TRUE(found == run(*make_kernel_gemm(queue_, spec), spec));
}

TEST_F(CublasLtGemms, KeepTheLibrarysWords) {
  const GemmSpec spec{.m = 4, .n = 5, .k = 6};
  const auto gemm = library_->gemm(spec, reason_);
  fake_cublaslt().fails = true;
  try {
    run(*gemm, spec);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cublasLtMatmul: did not work (NAME_OF_FAILURE)"));
  }
}

TEST_F(CublasLtGemms, TakeFp8WhereTheLibraryDoes) {
  GemmSpec spec{.m = 8, .n = 16, .k = 32, .transpose_b = true};
  spec.a = DType::kF8E4M3, spec.b = DType::kF8E5M2, spec.c = kF32;
  const auto gemm = library_->gemm(spec, reason_);
  ASSERT_NE(gemm, nullptr) << reason_;
  const auto found = run(*gemm, spec);
  const auto element = [](int code, int mantissa, int bias) {
    const int e = code >> mantissa;
    const double fraction = std::ldexp(code % (1 << mantissa), -mantissa);
    return e == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, e - bias);
  };
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 16; ++j) {
      double sum = 0;
      for (int l = 0; l < 32; ++l)
        sum += element(((i * 32 + l) * 7 + 1) % 57, 3, 7) * element(((j * 32 + l) * 7 + 2) % 57, 2, 15);
      float value = 0;
      std::memcpy(&value, found.data() + (i * 16 + j) * 4, sizeof value);
      EXPECT_NEAR(value, sum, 32 * 0x1p-24 * sum);
    }
  spec.transpose_b = false;
  EXPECT_EQ(library_->gemm(spec, reason_), nullptr);
  EXPECT_THAT(reason_, HasSubstr("has no such thing (NAME_OF_UNSUPPORTED)"));
  EXPECT_FALSE(CublasLt::multiplies(DType::kF8E4M3, 80));
  EXPECT_TRUE(CublasLt::multiplies(DType::kF8E4M3, 90));
}

TEST_F(CublasLtGemms, DeclineWhatTheyDoNotHave) {
  GemmSpec spec{.m = 4, .n = 5, .k = 6, .a = kF32, .b = kBF16, .c = kF32};
  EXPECT_EQ(library_->gemm(spec, reason_), nullptr);
  EXPECT_THAT(reason_, HasSubstr("no product of these types"));
  spec = {.m = 4, .n = 5, .k = 0};
  EXPECT_EQ(library_->gemm(spec, reason_), nullptr);
  spec = {.m = 4, .n = 5, .k = 6, .a = DType::kF16, .b = DType::kF16, .c = DType::kF16, .bias = true};
  EXPECT_EQ(library_->gemm(spec, reason_), nullptr);
  EXPECT_THAT(reason_, HasSubstr("take C in f32"));
  EXPECT_EQ(fake_cublaslt().asked, 0);
}

}  // namespace
}  // namespace tenon::cuda
