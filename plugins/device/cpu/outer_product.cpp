// Rows of C are shared among threads.
#include "outer_product.hpp"

namespace tenon::cpu {
namespace {

class OuterProduct final : public Gemm {
 public:
  OuterProduct(const Kernels& kernels, const GemmSpec& spec) : kernels_(kernels), spec_(spec) {}

  std::size_t scratch_bytes() const override { return 0; }

  void run(TensorView a, TensorView b, TensorView c, TensorView bias, float, TensorView scratch) override {
    check_gemm(spec_, DType::kF32, a, b, c, bias, scratch, 0);
    const auto scale = kernels_.ops<float>().elementwise.scale;
    parallel_for(spec_.batch * spec_.m, row_block(spec_.n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        scale(a.as<float>()[row], b.as<float>() + row / spec_.m * spec_.n, c.as<float>() + row * spec_.n,
              spec_.n);
    });
  }

 private:
  Kernels kernels_;
  GemmSpec spec_;
};

}  // namespace

bool is_outer_product(const GemmSpec& spec) {
  constexpr std::int64_t kShortest = 64;  // elements of a row that justify a call
  const bool floats = spec.a == DType::kF32 && spec.b == DType::kF32 && spec.c == DType::kF32;
  return floats && spec.k == 1 && spec.n >= kShortest && !spec.accumulate && !spec.bias && !spec.alpha &&
         spec.epilogue == Epilogue::kNone;
}

std::unique_ptr<Gemm> make_outer_product(const Kernels& kernels, const GemmSpec& spec) {
  return std::make_unique<OuterProduct>(kernels, spec);
}

}  // namespace tenon::cpu
