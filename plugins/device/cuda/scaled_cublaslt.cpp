// cuBLASLt's products of codes: operands with the contracted dimension along their columns, the first one
// transposed, which is the only form that the library has for them; scales by mode and pointer; sums in f32.
#include "scaled.hpp"

#include "cublaslt.hpp"
#include "gemm.hpp"

#include <utility>

namespace tenon::cuda {
namespace {

cudaDataType_t data_type(ElementFormat element) {
  return element == ElementFormat::kE2M1   ? CUDA_R_4F_E2M1
         : element == ElementFormat::kE5M2 ? CUDA_R_8F_E5M2
                                           : CUDA_R_8F_E4M3;
}

cublasLtMatmulMatrixScale_t scale_mode(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::kTwoLevel:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
    case ScaleKind::kPower:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    case ScaleKind::kRows:
      return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    default:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
}

/// Whether our own kernels have work left: a bias is f32 here, and maps differ in their last bits.
bool has_tail(const GemmSpec& spec) {
  return spec.bias || spec.epilogue != Epilogue::kNone;
}

/// C'[n, m] = B[n, k] A'[k, m], column-major: B is the library's first operand, with rows of k.
struct Descriptors {
  CublasLtOwned<cublasLtMatmulDescOpaque_t> product;
  CublasLtOwned<cublasLtMatrixLayoutOpaque_t> first, second, c;
  const CublasLtFunctions& lt;

  Descriptors(const CublasLtFunctions& functions, const ScaledProductSpec& spec, const ScaledSides& sides,
              void* placeholder)
      : product(make_product(functions, CUBLAS_COMPUTE_32F, CUDA_R_32F)),
        first(make_matrix(functions, data_type(spec.b.element), sides.b.extents.padded, spec.product.n, 1)),
        second(make_matrix(functions, data_type(spec.a.element), sides.a.extents.padded, spec.product.m, 1)),
        c(make_matrix(functions,
                      spec.product.c == DType::kBF16 && !has_tail(spec.product) ? CUDA_R_16BF : CUDA_R_32F,
                      spec.product.n, spec.product.m, 1)),
        lt(functions) {
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<std::int32_t>(scale_mode(sides.b.kind)));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<std::int32_t>(scale_mode(sides.a.kind)));
    // Some versions refuse scaled operands without scale pointers even when only asked for an algorithm.
    if (sides.a.kind != ScaleKind::kTensor) set_scales(placeholder, placeholder);
  }

  void set_scales(const void* of_first, const void* of_second) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of_first);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of_second);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    TENON_LT(lt, cublasLtMatmulDescSetAttribute, product.get(), attribute, &value, sizeof(value));
  }
};

}  // namespace

struct ScaledLibrary::State : CublasLtLibrary {
  using CublasLtLibrary::CublasLtLibrary;
};

namespace {

class LibraryScaledProduct final : public ScaledProduct {
 public:
  LibraryScaledProduct(ScaledLibrary::State& state, const ScaledProductSpec& spec)
      : state_(state),
        spec_(spec),
        sides_(sides_of(spec)),
        descriptors_(state.lt, spec, sides_, state.queue.scratch<void>()),
        choice_(state.choose(descriptors_.product.get(), descriptors_.first.get(), descriptors_.second.get(),
                             descriptors_.c.get())) {}

  /// "" = there is an algorithm.
  const std::string& refusal() const { return choice_.reason; }

  std::size_t scratch_bytes() const override {
    return ScaledSide::kLine + sides_.a.bytes() + sides_.b.bytes() + sum_bytes() +
           whole_lines(static_cast<std::int64_t>(choice_.workspace));
  }

  void run(const ScaledMatrix& a, const ScaledMatrix& b, TensorView c, TensorView bias, float alpha,
           TensorView scratch) override {
    check_scaled(spec_, sides_, a, b, c, bias, scratch, scratch_bytes());
    if (reinterpret_cast<std::uintptr_t>(c.data) % kCublasLtAlignment != 0) {
      fail_run(fmt::format("device {}: scaled product: C must begin at a multiple of {} bytes", kDeviceName,
                           kCublasLtAlignment));
    }
    std::byte* room = lined_up(scratch);
    const auto take = [&](std::int64_t bytes) { return std::exchange(room, room + bytes); };
    const LaidOut at_a = lay_out(state_.queue, sides_.a, a, take(sides_.a.bytes()));
    const LaidOut at_b = lay_out(state_.queue, sides_.b, b, take(sides_.b.bytes()));
    if (sides_.a.kind != ScaleKind::kTensor) descriptors_.set_scales(at_b.scales, at_a.scales);
    const bool tail = has_tail(spec_.product);
    void* const result = tail ? take(sum_bytes()) : c.data;
    const float factors[] = {spec_.product.alpha ? alpha : 1.0f,
                             spec_.product.accumulate && !tail ? 1.0f : 0.0f};
    TENON_LT(state_.lt, cublasLtMatmul, state_.handle, descriptors_.product.get(), &factors[0], at_b.codes,
             descriptors_.first.get(), at_a.codes, descriptors_.second.get(), &factors[1], result,
             descriptors_.c.get(), result, descriptors_.c.get(), &choice_.algorithm,
             choice_.workspace == 0 ? nullptr : room, choice_.workspace,
             static_cast<cudaStream_t>(state_.queue.stream()));
    if (tail) finish_gemm(state_.queue, spec_.product, result, c, bias);
  }

 private:
  std::int64_t sum_bytes() const {
    return has_tail(spec_.product) ? whole_lines(spec_.product.m * spec_.product.n * 4) : 0;
  }

  ScaledLibrary::State& state_;
  ScaledProductSpec spec_;
  ScaledSides sides_;
  Descriptors descriptors_;
  CublasLtChoice choice_;
};

}  // namespace

ScaledLibrary::ScaledLibrary(std::unique_ptr<State> state) : state_(std::move(state)) {}
ScaledLibrary::~ScaledLibrary() = default;

std::unique_ptr<ScaledLibrary> ScaledLibrary::open(Queue& queue, std::string& reason) {
  auto state = open_cublaslt<State>(queue, reason);
  return state == nullptr ? nullptr : std::unique_ptr<ScaledLibrary>(new ScaledLibrary(std::move(state)));
}

std::string ScaledLibrary::absent_units(ScaleKind kind, int architecture) {
  const bool blocks = kind == ScaleKind::kPower || kind == ScaleKind::kTwoLevel;
  const int first = blocks ? 100 : 90;
  if (architecture >= first) return "";
  return fmt::format("sm_{} has no units for {}; sm_{} is the first that does", architecture,
                     blocks ? "block scales" : "8-bit numbers", first);
}

std::unique_ptr<ScaledProduct> ScaledLibrary::product(const ScaledProductSpec& spec, std::string& reason,
                                                      int architecture) {
  if (architecture == 0) architecture = state_->queue.architecture();
  reason = absent_units(sides_of(spec).a.kind, architecture);
  if (!reason.empty()) return nullptr;
  const GemmSpec& p = spec.product;
  // Rows of C, and of what our tail reads, must keep the alignment that the library asks of this kind.
  if (p.n % 16 != 0) {
    reason =
        fmt::format("cuBLASLt multiplies codes into rows of a multiple of 16 elements, found n = {}", p.n);
    return nullptr;
  }
  auto made = std::make_unique<LibraryScaledProduct>(*state_, spec);
  reason = made->refusal();
  return reason.empty() ? std::move(made) : nullptr;
}

}  // namespace tenon::cuda
