// Chooses how a product is computed (family Blas): oneDNN for f32 and for bf16 where the processor multiplies
// it, the kernels of this tree for f64 and where oneDNN has none, and conversion to f32 before them for the
// rest; products of one term are scaled rows.
#include "common.hpp"
#include "gemm.hpp"
#ifndef TENON_PORTABLE_THREADS
#endif

namespace tenon::cpu {
namespace {

#ifndef TENON_PORTABLE_THREADS
/// A product whose map runs over C afterwards, with the bits of the map alone.
class MappedGemm final : public Gemm {
 public:
  MappedGemm(const Kernels& kernels, std::unique_ptr<Gemm> product, Epilogue map)
      : kernels_(kernels), product_(std::move(product)), map_(map) {}
  std::size_t scratch_bytes() const override { return product_->scratch_bytes(); }
  void run(TensorView a, TensorView b, TensorView c, TensorView bias, float alpha,
           TensorView scratch) override {
    product_->run(a, b, c, bias, alpha, scratch);
    with_storage(c.dtype, "gemm", [&](auto tag) {
      auto* values = c.as<typename decltype(tag)::type>();
      parallel_for(c.elements(), kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
        map_forward(kernels_, map_, values + begin, values + begin, end - begin);
      });
    });
  }

 private:
  Kernels kernels_;
  std::unique_ptr<Gemm> product_;
  Epilogue map_;
};

/// oneDNN's ReLU turns a NaN into 0, which would hide a failed run; oneDNN has no squared ReLU.
bool maps_in_onednn(Epilogue map) {
  return map == Epilogue::kNone || map == Epilogue::kGeluTanh || map == Epilogue::kGeluExact;
}
#endif

class CpuBlas final : public Blas {
 public:
  explicit CpuBlas(const Kernels& kernels) : kernels_(kernels) {
#ifndef TENON_PORTABLE_THREADS
    if (kernels.onednn) onednn_ = std::make_unique<Onednn>();
#endif
  }

  std::unique_ptr<Gemm> gemm(const GemmSpec& spec) override {
    device_arguments::check_gemm_extents(spec);
    if (!device_arguments::kernels_compute(spec)) device_arguments::refuse_gemm(spec, "");
    const GemmSpec inner = computed_as(spec);
    if (inner.a == spec.a && inner.b == spec.b && inner.c == spec.c) return plain(spec);
    return make_converted_gemm(kernels_, spec, inner, [this](const GemmSpec& part) { return plain(part); });
  }

  bool native(DType operand) const override {
    switch (operand) {
      case DType::kF32:
      case DType::kF64:
        return true;
#ifndef TENON_PORTABLE_THREADS
      case DType::kBF16:
        return onednn_ != nullptr && onednn_->native_bf16();
#endif
      default:
        return false;
    }
  }

 private:
  /// The same product in dtypes that one plan accepts. Our own kernels accept operands of one dtype and any
  /// C; oneDNN accepts f32 throughout, or bf16 operands where the processor has units for them.
  GemmSpec computed_as(GemmSpec spec) const {
    if (spec.a != spec.b) spec.a = spec.b = DType::kF32;
#ifndef TENON_PORTABLE_THREADS
    if (onednn_ != nullptr && spec.a != DType::kF64) {
      if (!onednn_->native_bf16()) spec.a = spec.b = DType::kF32;
      // Rounding to bf16 follows our own map, unless, as with ReLU, their order makes no difference.
      const bool maps_wide = !maps_in_onednn(spec.epilogue) && spec.epilogue != Epilogue::kRelu;
      if (spec.a == DType::kF32 || maps_wide) spec.c = DType::kF32;
    }
#endif
    return spec;
  }

#ifndef TENON_PORTABLE_THREADS
  /// Products of few rows of a batch, as in generation, where a row must not depend on the others.
  bool keeps_rows_apart(const GemmSpec& spec) const {
    constexpr std::int64_t kFewRows = 64;
    const bool rows_of_a_batch = spec.batch == 1 && !spec.transpose_a && !spec.accumulate;
    return rows_of_a_batch && spec.m <= kFewRows && !onednn_->rows_apart();
  }
#endif

  std::unique_ptr<Gemm> plain(const GemmSpec& spec) const {
    if (is_outer_product(spec)) return make_outer_product(kernels_, spec);
#ifndef TENON_PORTABLE_THREADS
    // An empty product is not worth a primitive, and the library would leave C untouched where k is 0.
    const bool some = spec.batch > 0 && spec.m > 0 && spec.n > 0 && spec.k > 0;
    if (onednn_ != nullptr && some && spec.a != DType::kF64 && !keeps_rows_apart(spec)) {
      GemmSpec inside = spec;
      if (!maps_in_onednn(spec.epilogue)) inside.epilogue = Epilogue::kNone;
      auto plan = onednn_->gemm(inside);
      if (plan != nullptr && inside.epilogue != spec.epilogue)
        return std::make_unique<MappedGemm>(kernels_, std::move(plan), spec.epilogue);
      if (plan != nullptr) return plan;
    }
#endif
    return make_kernel_gemm(kernels_, spec);
  }

  Kernels kernels_;
#ifndef TENON_PORTABLE_THREADS
  std::unique_ptr<Onednn> onednn_;
#endif
};

}  // namespace

std::unique_ptr<Blas> make_blas(const Kernels& kernels) {
  return std::make_unique<CpuBlas>(kernels);
}

}  // namespace tenon::cpu
