// Products by the kernels of this tree, in fixed tiles of C. A tile whose result needs a bias, an epilogue or
// a narrower type is computed on the stack first, so that it is rounded once. Products of one term are scaled
// rows.
#include "common.hpp"
#include "gemm.hpp"

#include <tenon/kernels/bf16.hpp>

namespace tenon::cpu {
namespace {

using kernels::Arith;
using kernels::Bf16;

constexpr std::int64_t kTileRows = 96;
constexpr std::int64_t kTileColumns = 128;

template <class S, class C>
class KernelGemm final : public Gemm {
 public:
  KernelGemm(const Kernels& kernels, const GemmSpec& spec) : kernels_(kernels), spec_(spec) {}

  std::size_t scratch_bytes() const override { return 0; }

  void run(TensorView a, TensorView b, TensorView c, TensorView bias, float alpha,
           TensorView scratch) override {
    device_arguments::check_gemm(spec_, a, b, c, bias, scratch, 0);
    const std::int64_t down = (spec_.m + kTileRows - 1) / kTileRows;
    const std::int64_t across = (spec_.n + kTileColumns - 1) / kTileColumns;
    parallel_for(spec_.batch * down * across, 1, [&](std::int64_t tile, std::int64_t) {
      const std::int64_t product = tile / (down * across), row = tile / across % down * kTileRows,
                         column = tile % across * kTileColumns;
      kernels::GemmArgs<S, A> args;
      args.m = std::min(kTileRows, spec_.m - row);
      args.n = std::min(kTileColumns, spec_.n - column);
      args.k = spec_.k;
      args.transpose_a = spec_.transpose_a;
      args.transpose_b = spec_.transpose_b;
      args.lda = spec_.transpose_a ? spec_.m : spec_.k;
      args.ldb = spec_.transpose_b ? spec_.k : spec_.n;
      args.a = a.as<S>() + product * spec_.m * spec_.k + (spec_.transpose_a ? row : row * args.lda);
      args.b = b.as<S>() + product * spec_.k * spec_.n + (spec_.transpose_b ? column * args.ldb : column);
      args.alpha = spec_.alpha ? static_cast<A>(alpha) : A{1};
      C* out = c.as<C>() + (product * spec_.m + row) * spec_.n + column;
      const A* shift = spec_.bias ? bias.as<A>() + column : nullptr;
      compute(args, out, shift);
    });
  }

 private:
  using A = Arith<S>;

  void compute(kernels::GemmArgs<S, A>& args, C* out, const A* bias) const {
    const auto gemm = kernels_.ops<S>().gemm.gemm_wide;
    if constexpr (std::is_same_v<C, A>) {
      if (bias == nullptr && spec_.epilogue == Epilogue::kNone) {
        args.c = out;
        args.ldc = spec_.n;
        args.beta = spec_.accumulate ? A{1} : A{0};
        gemm(args);
        return;
      }
    }
    alignas(64) A tile[kTileRows * kTileColumns];
    args.c = tile;
    args.ldc = kTileColumns;
    gemm(args);
    const auto& ops = kernels_.ops<A>().elementwise;
    for (std::int64_t i = 0; i < args.m; ++i) {
      A* sums = tile + i * kTileColumns;
      C* row = out + i * spec_.n;
      if (spec_.accumulate) {
        A old[kTileColumns];
        convert_block(kernels_, row, old, args.n);
        ops.add(sums, old, sums, args.n);
      }
      if (bias != nullptr) ops.add(sums, bias, sums, args.n);
      if (spec_.epilogue != Epilogue::kNone) map_forward(kernels_, spec_.epilogue, sums, sums, args.n);
      convert_block(kernels_, sums, row, args.n);
    }
  }

  Kernels kernels_;
  GemmSpec spec_;
};

template <class S>
std::unique_ptr<Gemm> with_result(const Kernels& kernels, const GemmSpec& spec) {
  if (spec.c == kArithDType<S>) return std::make_unique<KernelGemm<S, Arith<S>>>(kernels, spec);
  if constexpr (!std::is_same_v<S, double>) {
    if (spec.c == DType::kBF16) return std::make_unique<KernelGemm<S, Bf16>>(kernels, spec);
  }
  refuse_dtype(spec.c, "gemm: C");
}

}  // namespace

std::unique_ptr<Gemm> make_kernel_gemm(const Kernels& kernels, const GemmSpec& spec) {
  return with_storage(spec.a, "gemm",
                      [&](auto tag) { return with_result<typename decltype(tag)::type>(kernels, spec); });
}

namespace {

/// Rows of C are shared among threads.
class OuterProduct final : public Gemm {
 public:
  OuterProduct(const Kernels& kernels, const GemmSpec& spec) : kernels_(kernels), spec_(spec) {}

  std::size_t scratch_bytes() const override { return 0; }

  void run(TensorView a, TensorView b, TensorView c, TensorView bias, float, TensorView scratch) override {
    device_arguments::check_gemm(spec_, a, b, c, bias, scratch, 0);
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
