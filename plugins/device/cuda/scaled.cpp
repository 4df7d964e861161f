// The family ScaledProducts: its refusals, and products by this tree's own kernels on laid-out operands.
#include "scaled.hpp"

#include "common.hpp"
#include "gemm.hpp"

#include <fmt/format.h>

#ifndef TENON_CUDA_EMULATED
#include <mutex>
#endif
#include <utility>

namespace tenon::cuda {
namespace {

constexpr const char* kCodeNames[] = {"e2m1", "e2m3", "e3m2", "e4m3", "e5m2"};

/// Layout of the stored matrix: A [m, k] or [k, m], B [k, n] or [n, k].
ScaledSide side_of(const ScaledOperand& operand, std::int64_t outer, std::int64_t inner, bool down) {
  ScaledSide side;
  side.operand = operand;
  side.kind = operand.scale == BlockScale::kTensor     ? ScaleKind::kTensor
              : operand.scale == BlockScale::kFloat    ? ScaleKind::kRows
              : operand.scale == BlockScale::kTwoLevel ? ScaleKind::kTwoLevel
                                                       : ScaleKind::kPower;
  const std::int64_t multiple = side.tiled() ? 32 : 16;
  side.extents = {outer, inner, (inner + multiple - 1) / multiple * multiple, down,
                  operand.element == ElementFormat::kE2M1};
  return side;
}

/// "" or why the units have no such operand.
std::string operand_refusal(const char* name, const ScaledOperand& o, std::int64_t inner, bool down) {
  const std::int64_t along = down ? o.block_rows : o.block_columns,
                     across = down ? o.block_columns : o.block_rows;
  const bool fp8 = o.element == ElementFormat::kE4M3 || o.element == ElementFormat::kE5M2;
  const bool fp4 = o.element == ElementFormat::kE2M1;
  const auto refuse = [&](const std::string& why) {
    return fmt::format("{} is {} in blocks of {}x{}: {}", name, kCodeNames[static_cast<int>(o.element)],
                       o.block_rows, o.block_columns, why);
  };
  switch (o.scale) {
    case BlockScale::kTensor:
      return fp8 ? "" : refuse("one scale for the whole matrix goes with e4m3 and e5m2");
    case BlockScale::kTwoLevel:
      if (!fp4) return refuse("two-level scales go with e2m1");
      return along == 16 ? ""
                         : refuse("blocks must have 16 elements along the dimension that is summed over");
    case BlockScale::kPower:
      if (!fp8) return refuse("powers of two as scales go with e4m3 and e5m2");
      return along > 0 && along % 32 == 0
                 ? ""
                 : refuse(
                       "blocks must have a multiple of 32 elements along the dimension that is summed over");
    default:
      if (!fp8) return refuse("f32 scales go with e4m3 and e5m2");
      return along >= inner && across == 1
                 ? ""
                 : refuse("f32 scales must belong to whole lines along the dimension that is summed over");
  }
}

class OwnScaledProduct final : public ScaledProduct {
 public:
  OwnScaledProduct(Queue& queue, const ScaledProductSpec& spec)
      : queue_(queue), spec_(spec), sides_(sides_of(spec)) {
    GemmSpec gemm = spec.product;
    gemm.k = sides_.a.extents.padded;
    gemm.transpose_a = false, gemm.transpose_b = true;
    gemm.a = gemm.b = DType::kBF16;
    if (by_rows()) {
      gemm.c = DType::kF32;
      gemm.bias = gemm.accumulate = false;
      gemm.epilogue = Epilogue::kNone;
    }
    gemm_ = make_kernel_gemm(queue, gemm);
  }

  std::size_t scratch_bytes() const override {
    return ScaledSide::kLine + sides_.a.bytes() + sides_.b.bytes() + value_bytes(sides_.a) +
           value_bytes(sides_.b) + sum_bytes();
  }

  void run(const ScaledMatrix& a, const ScaledMatrix& b, TensorView c, TensorView bias, float alpha,
           TensorView scratch) override {
    check_scaled(spec_, sides_, a, b, c, bias, scratch, scratch_bytes());
    std::byte* room = lined_up(scratch);
    const auto take = [&](std::int64_t bytes) { return std::exchange(room, room + bytes); };
    const LaidOut at_a = lay_out(queue_, sides_.a, a, take(sides_.a.bytes()));
    const LaidOut at_b = lay_out(queue_, sides_.b, b, take(sides_.b.bytes()));
    const auto values = [&](const ScaledSide& side, const LaidOut& from) {
      const TensorView view{take(value_bytes(side)), Shape{side.extents.outer, side.extents.padded},
                            DType::kBF16, MemorySpace::kCuda};
      read_laid_out(queue_, side, from, view.data);
      return view;
    };
    const TensorView of_a = values(sides_.a, at_a), of_b = values(sides_.b, at_b);
    if (!by_rows()) return gemm_->run(of_a, of_b, c, bias, alpha, {});
    const TensorView sums{take(sum_bytes()), c.shape, DType::kF32, MemorySpace::kCuda};
    gemm_->run(of_a, of_b, sums, {}, alpha, {});
    scale_rows(queue_, sides_, at_a, at_b, sums.as<float>());
    finish_gemm(queue_, spec_.product, sums.data, c, bias);
  }

 private:
  bool by_rows() const { return sides_.a.kind == ScaleKind::kRows; }
  static std::int64_t value_bytes(const ScaledSide& side) {
    return whole_lines(side.extents.outer * side.extents.padded * 2);
  }
  std::int64_t sum_bytes() const {
    return by_rows() ? whole_lines(spec_.product.m * spec_.product.n * 4) : 0;
  }

  Queue& queue_;
  ScaledProductSpec spec_;
  ScaledSides sides_;
  std::unique_ptr<Gemm> gemm_;
};

class CudaScaledProducts final : public ScaledProducts {
 public:
  explicit CudaScaledProducts(Queue& queue) : queue_(queue) {}

  std::string refusal(const ScaledProductSpec& spec) override {
    std::string reason = scaled_refusal(spec);
#ifndef TENON_CUDA_EMULATED
    if (reason.empty()) make(spec, reason);
#endif
    return reason;
  }

  std::unique_ptr<ScaledProduct> prepare(const ScaledProductSpec& spec) override {
    std::string reason = scaled_refusal(spec);
    std::unique_ptr<ScaledProduct> product = reason.empty() ? make(spec, reason) : nullptr;
    if (product == nullptr) fail_config(fmt::format("device {}: scaled product: {}", kDeviceName, reason));
    return product;
  }

 private:
  std::unique_ptr<ScaledProduct> make(const ScaledProductSpec& spec, [[maybe_unused]] std::string& reason) {
#ifdef TENON_CUDA_EMULATED
    return make_own_scaled(queue_, spec);
#else
    const std::lock_guard lock(opening_);
    if (library_ == nullptr && absent_.empty()) library_ = ScaledLibrary::open(queue_, absent_);
    reason = absent_;
    return library_ == nullptr ? nullptr : library_->product(spec, reason);
#endif
  }

#ifndef TENON_CUDA_EMULATED
  std::mutex opening_;
  std::unique_ptr<ScaledLibrary> library_;
  std::string absent_;  ///< why there is no library
#endif
  Queue& queue_;
};

}  // namespace

std::int64_t ScaledSide::scale_bytes() const {
  if (kind == ScaleKind::kRows) return extents.outer * 4;
  if (!tiled()) return 0;
  return kernels::swizzled_outer(extents.outer) * kernels::swizzled_inner(extents.padded / block());
}

std::int64_t ScaledSide::bytes() const {
  return whole_lines(code_bytes()) + whole_lines(scale_bytes());
}

std::int64_t ScaledSide::stored_code_bytes() const {
  return (extents.down ? extents.inner : extents.outer) * extents.stored_stride();
}

std::int64_t ScaledSide::stored_scales() const {
  if (kind == ScaleKind::kTensor) return 0;
  const std::int64_t rows = extents.down ? extents.inner : extents.outer;
  const auto blocks = [](std::int64_t extent, std::int64_t block) { return (extent + block - 1) / block; };
  return blocks(rows, operand.block_rows) * blocks(extents.stored_columns(), operand.block_columns);
}

std::string scaled_refusal(const ScaledProductSpec& spec) {
  const GemmSpec& p = spec.product;
  if (p.batch != 1) return "products of codes have no batch";
  if (p.m < 1 || p.n < 1 || p.k < 1) return "empty products have no units to run on";
  if (p.c != DType::kF32 && p.c != DType::kBF16)
    return fmt::format("C is {}, expected f32 or bf16", dtype_name(p.c));
  const std::string reasons[] = {operand_refusal("A", spec.a, p.k, p.transpose_a),
                                 operand_refusal("B", spec.b, p.k, !p.transpose_b)};
  for (const std::string& reason : reasons) {
    if (!reason.empty()) return reason;
  }
  if (spec.a.scale != spec.b.scale) return "both operands must have scales of one kind";
  if (spec.a.element == ElementFormat::kE5M2 && spec.b.element == ElementFormat::kE5M2)
    return "one of both operands must be e4m3, found e5m2 twice";
  return "";
}

ScaledSides sides_of(const ScaledProductSpec& spec) {
  const GemmSpec& p = spec.product;
  return {side_of(spec.a, p.m, p.k, p.transpose_a), side_of(spec.b, p.n, p.k, !p.transpose_b)};
}

void check_scaled(const ScaledProductSpec& spec, const ScaledSides& sides, const ScaledMatrix& a,
                  const ScaledMatrix& b, const TensorView& c, const TensorView& bias,
                  const TensorView& scratch, std::size_t scratch_bytes) {
  const auto expect = [](const TensorView& view, DType dtype, std::int64_t elements, const char* name) {
    if (view.dtype != dtype || view.elements() != elements || view.data == nullptr ||
        view.space != MemorySpace::kCuda)
      refuse_view(view, dtype, elements, "scaled product", name);
  };
  const auto expect_side = [&](const ScaledSide& side, const ScaledMatrix& matrix, const char* codes,
                               const char* scales) {
    expect(matrix.codes, DType::kU8, side.stored_code_bytes(), codes);
    if (side.kind != ScaleKind::kTensor)
      expect(matrix.scales, side.kind == ScaleKind::kRows ? DType::kF32 : DType::kU8, side.stored_scales(),
             scales);
  };
  expect_side(sides.a, a, "codes of A", "scales of A");
  expect_side(sides.b, b, "codes of B", "scales of B");
  expect(c, spec.product.c, spec.product.m * spec.product.n, "C");
  if (spec.product.bias) expect(bias, DType::kF32, spec.product.n, "bias");
  const auto needed = static_cast<std::int64_t>(scratch_bytes);
  if (scratch.data == nullptr || scratch.bytes() < needed || scratch.space != MemorySpace::kCuda)
    refuse_view(scratch, DType::kU8, needed, "scaled product", "scratch");
}

std::byte* lined_up(const TensorView& memory) {
  const std::size_t beyond =
      reinterpret_cast<std::uintptr_t>(memory.data) % static_cast<std::size_t>(ScaledSide::kLine);
  return memory.as<std::byte>() + (beyond == 0 ? 0 : static_cast<std::size_t>(ScaledSide::kLine) - beyond);
}

std::unique_ptr<ScaledProduct> make_own_scaled(Queue& queue, const ScaledProductSpec& spec) {
  return std::make_unique<OwnScaledProduct>(queue, spec);
}

std::unique_ptr<ScaledProducts> make_scaled_products(Queue& queue) {
  return std::make_unique<CudaScaledProducts>(queue);
}

}  // namespace tenon::cuda
