// Products through f32 sums in scratch: the bits of the same product in one piece, whole and split along the
// rows. The inner product is our own here, the library's on a GPU.
#include "gemm.hpp"

#include "gemm_test.hpp"

#include <gtest/gtest.h>

namespace tenon::cuda {
namespace {

constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;

struct Case {
  GemmSpec spec;
  std::int64_t products;  ///< inner products in one run
};
// 32 MiB of sums are 2048 rows of 4000, or 2560 of 3001.
const Case kCases[] = {
    {{.m = 37, .n = 53, .k = 9, .a = kBF16, .b = kBF16, .c = kBF16, .bias = true}, 1},
    {{.m = 37, .n = 53, .k = 9, .batch = 3, .a = kF32, .b = kF32, .c = kBF16, .accumulate = true}, 1},
    {{.m = 2100, .n = 4000, .k = 3, .a = kBF16, .b = kBF16, .c = kBF16, .epilogue = Epilogue::kSilu}, 2},
    {{.m = 2600,
      .n = 3001,
      .k = 2,
      .batch = 2,
      .transpose_b = true,
      .a = kBF16,
      .b = kBF16,
      .c = kBF16,
      .accumulate = true,
      .bias = true,
      .alpha = true},
     4},
    {{.m = 2600, .n = 3301, .k = 2, .transpose_a = true, .a = kBF16, .b = kBF16, .c = kBF16, .bias = true},
     1}};

class Counted final : public Gemm {
 public:
  Counted(std::unique_ptr<Gemm> inner, int& runs) : inner_(std::move(inner)), runs_(runs) {}
  std::size_t scratch_bytes() const override { return 48; }
  void run(TensorView a, TensorView b, TensorView c, TensorView bias, float alpha,
           TensorView scratch) override {
    EXPECT_EQ(scratch.bytes(), 48);
    ++runs_;
    inner_->run(a, b, c, bias, alpha, scratch);
  }

 private:
  std::unique_ptr<Gemm> inner_;
  int& runs_;
};

TEST(WideGemms, GiveTheBitsOfOnePiece) {
  Queue queue({});
  for (const Case& each : kCases) {
    const GemmSpec& s = each.spec;
    const Numbers a(queue, s.batch * s.m * s.k, s.a, 1), b(queue, s.batch * s.k * s.n, s.b, 2),
        bias(queue, s.n, kF32, 3), expected(queue, s.batch * s.m * s.n, s.c, 4),
        found(queue, s.batch * s.m * s.n, s.c, 4);
    make_kernel_gemm(queue, s)->run(a.view(), b.view(), expected.view(), bias.view(), 0.5f, {});
    int runs = 0;
    const auto wide = make_wide_gemm(queue, s, [&](const GemmSpec& inner) -> std::unique_ptr<Gemm> {
      EXPECT_TRUE(inner.c == kF32 && !inner.bias && !inner.accumulate && inner.epilogue == Epilogue::kNone);
      return std::make_unique<Counted>(make_kernel_gemm(queue, inner), runs);
    });
    const Numbers scratch(queue, static_cast<std::int64_t>(wide->scratch_bytes()), DType::kU8, 0);
    wide->run(a.view(), b.view(), found.view(), bias.view(), 0.5f, scratch.view());
    EXPECT_EQ(runs, each.products) << s.m << " " << s.n;
    EXPECT_TRUE(found.bytes() == expected.bytes()) << s.m << " " << s.n;
    if (!s.transpose_a) {
      EXPECT_LE(wide->scratch_bytes(), (std::size_t{32} << 20) + 512) << s.m << " " << s.n;
    }
  }
}

TEST(WideGemms, AreNothingWithoutAnInnerProduct) {
  Queue queue({});
  EXPECT_EQ(make_wide_gemm(queue, kCases[0].spec, [](const GemmSpec&) { return nullptr; }), nullptr);
}

}  // namespace
}  // namespace tenon::cuda
