// Products through cuBLASLt's C interface. Everything expensive is done when a product is prepared:
// descriptors, and the choice of an algorithm, which is kept for equal specifications. run() only passes
// pointers.
#include "gemm.hpp"

#include "cublaslt.hpp"

#include <map>
#include <mutex>
#include <tuple>

namespace tenon::cuda {
namespace {

constexpr std::size_t kWorkspaceAlignment = 256;

bool is_fp8(DType dtype) {
  return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF8E4M3:
      return CUDA_R_8F_E4M3;
    case DType::kF8E5M2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

/// Whether the library accepts the dtypes of operands and C, without the tail.
bool takes_dtypes(const GemmSpec& spec, int architecture) {
  if (!CublasLt::multiplies(spec.a, architecture) || !CublasLt::multiplies(spec.b, architecture))
    return false;
  if (is_fp8(spec.a)) {
    return is_fp8(spec.b) && (spec.c == DType::kBF16 || spec.c == DType::kF16 || spec.c == DType::kF32);
  }
  if (spec.a != spec.b) return false;
  const bool narrow = spec.a == DType::kBF16 || spec.a == DType::kF16;
  return spec.c == spec.a || (narrow && spec.c == DType::kF32);
}

/// Whether the library applies bias or map itself. It needs a bias of C's own dtype, and ours is f32; its
/// GELU is the tanh form in less than f32's precision; its ReLU would turn a NaN into 0.
bool fuses_bias(const GemmSpec& spec) {
  return spec.bias && !is_fp8(spec.a) && spec.c == DType::kF32;
}
bool fuses_map(const GemmSpec& spec) {
  return spec.epilogue == Epilogue::kGeluTanh && !spec.bias && !is_fp8(spec.a) &&
         (spec.c == DType::kBF16 || spec.c == DType::kF16);
}
/// The rest of the tail, which our own kernels apply afterwards.
GemmSpec left_over(GemmSpec spec) {
  spec.bias = spec.bias && !fuses_bias(spec);
  if (fuses_map(spec)) spec.epilogue = Epilogue::kNone;
  spec.accumulate = false;
  return spec;
}
bool has_tail(const GemmSpec& rest) {
  return rest.bias || rest.epilogue != Epilogue::kNone;
}

using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool, bool, DType, DType,
                       DType, bool, bool, bool, Epilogue>;
Key key_of(const GemmSpec& s) {
  return {s.m, s.n, s.k,          s.batch, s.transpose_a, s.transpose_b, s.a,
          s.b, s.c, s.accumulate, s.bias,  s.alpha,       s.epilogue};
}

cublasComputeType_t compute_type(const GemmSpec& spec, bool tf32) {
  if (spec.a == DType::kF64) return CUBLAS_COMPUTE_64F;
  return tf32 && spec.a == DType::kF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/// One product in the library's terms: C'[n, m] = B'[n, k] A'[k, m], column-major, where ' is a row-major
/// matrix as the library sees it.
struct Descriptors {
  CublasLtOwned<cublasLtMatmulDescOpaque_t> product;
  CublasLtOwned<cublasLtMatrixLayoutOpaque_t> a, b, c;
  const CublasLtFunctions& lt;

  Descriptors(const CublasLtFunctions& functions, const GemmSpec& s, bool tf32)
      : product(make_product(functions, compute_type(s, tf32), s.a == DType::kF64 ? CUDA_R_64F : CUDA_R_32F)),
        a(make_matrix(functions, data_type(s.a), s.transpose_a ? s.m : s.k, s.transpose_a ? s.k : s.m,
                      s.batch)),
        b(make_matrix(functions, data_type(s.b), s.transpose_b ? s.k : s.n, s.transpose_b ? s.n : s.k,
                      s.batch)),
        c(make_matrix(functions, data_type(s.c), s.n, s.m, s.batch)),
        lt(functions) {
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (fuses_bias(s)) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    if (fuses_map(s)) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU);
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    TENON_LT(lt, cublasLtMatmulDescSetAttribute, product.get(), attribute, &value, sizeof(value));
  }
};

}  // namespace

struct CublasLt::State : CublasLtLibrary {
  using CublasLtLibrary::CublasLtLibrary;

  CublasLtChoice ask(const GemmSpec& spec) const {
    const Descriptors wanted(lt, spec, queue.tf32());
    return choose(wanted.product.get(), wanted.b.get(), wanted.a.get(), wanted.c.get());
  }

  const CublasLtChoice& choice(const GemmSpec& spec) {
    const std::lock_guard lock(mutex);
    const Key key = key_of(spec);
    const auto known = choices.find(key);
    return known != choices.end() ? known->second : choices.emplace(key, ask(spec)).first->second;
  }

  std::mutex mutex;
  std::map<Key, CublasLtChoice> choices;
};

namespace {

class LibraryGemm final : public Gemm {
 public:
  LibraryGemm(CublasLt::State& state, const GemmSpec& spec, const CublasLtChoice& choice)
      : state_(state),
        spec_(spec),
        rest_(left_over(spec)),
        choice_(choice),
        descriptors_(state.lt, spec, state.queue.tf32()) {
    if (device_arguments::kernels_compute(spec)) unaligned_ = make_kernel_gemm(state.queue, spec);
  }

  // Room to align the library's memory, should the caller's scratch not be aligned.
  std::size_t scratch_bytes() const override {
    return choice_.workspace == 0 ? 0 : choice_.workspace + kWorkspaceAlignment;
  }

  void run(TensorView a, TensorView b, TensorView c, TensorView bias, float alpha,
           TensorView scratch) override {
    device_arguments::check_gemm(spec_, a, b, c, bias, scratch, scratch_bytes());
    const bool fused_bias = fuses_bias(spec_);
    if (off(a, kCublasLtAlignment) || off(b, kCublasLtAlignment) || off(c, kCublasLtAlignment) ||
        (fused_bias && off(bias, kCublasLtAlignment))) {
      if (unaligned_ != nullptr) return unaligned_->run(a, b, c, bias, alpha, scratch);
      fail_run(fmt::format("device {}: gemm of {} and {}: operands must begin at a multiple of {} bytes",
                           kDeviceName, dtype_name(spec_.a), dtype_name(spec_.b), kCublasLtAlignment));
    }
    std::byte* workspace = nullptr;
    if (choice_.workspace > 0) {
      workspace = scratch.as<std::byte>();
      const std::size_t beyond = off(scratch, kWorkspaceAlignment);
      if (beyond > 0) workspace += kWorkspaceAlignment - beyond;
    }
    if (fused_bias) descriptors_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data);
    // Read from the host within the call, in the arithmetic type.
    const float factors[] = {spec_.alpha ? alpha : 1.0f, spec_.accumulate ? 1.0f : 0.0f};
    const double wide[] = {factors[0], factors[1]};
    const auto factor = [&](int i) -> const void* {
      return spec_.a == DType::kF64 ? static_cast<const void*>(wide + i) : factors + i;
    };
    TENON_LT(state_.lt, cublasLtMatmul, state_.handle, descriptors_.product.get(), factor(0), b.data,
             descriptors_.b.get(), a.data, descriptors_.a.get(), factor(1), c.data, descriptors_.c.get(),
             c.data, descriptors_.c.get(), &choice_.algorithm, workspace, choice_.workspace,
             static_cast<cudaStream_t>(state_.queue.stream()));
    // C is f32 or f64 here, and rounding once more changes nothing.
    if (has_tail(rest_)) finish_gemm(state_.queue, rest_, c.data, c, bias);
  }

 private:
  static std::size_t off(const TensorView& view, std::size_t alignment) {
    return reinterpret_cast<std::uintptr_t>(view.data) % alignment;
  }

  CublasLt::State& state_;
  GemmSpec spec_, rest_;
  const CublasLtChoice& choice_;
  Descriptors descriptors_;
  std::unique_ptr<Gemm> unaligned_;
};

}  // namespace

CublasLt::CublasLt(std::unique_ptr<State> state) : state_(std::move(state)) {}
CublasLt::~CublasLt() = default;

std::unique_ptr<CublasLt> CublasLt::open(Queue& queue, std::string& reason) {
  auto state = open_cublaslt<State>(queue, reason);
  return state == nullptr ? nullptr : std::unique_ptr<CublasLt>(new CublasLt(std::move(state)));
}

bool CublasLt::multiplies(DType operand, int architecture) {
  switch (operand) {
    case DType::kF32:
    case DType::kF64:
    case DType::kBF16:
    case DType::kF16:
      return true;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return architecture >= 90;
    default:
      return false;
  }
}

std::unique_ptr<Gemm> CublasLt::gemm(const GemmSpec& spec, std::string& reason) {
  // An empty product has no sums, only a tail.
  if (spec.m == 0 || spec.n == 0 || spec.k == 0 || spec.batch == 0) {
    reason = "cuBLASLt has no empty products";
    return nullptr;
  }
  const bool tail = has_tail(left_over(spec));
  if (spec.c == DType::kBF16 && (tail || spec.a == DType::kF32)) {
    // Rounded before its tail, C would be rounded twice; and the library makes no bf16 from f32.
    return make_wide_gemm(state_->queue, spec, [&](const GemmSpec& part) { return gemm(part, reason); });
  }
  if (!takes_dtypes(spec, state_->queue.architecture())) {
    reason = "cuBLASLt has no product of these types";
    return nullptr;
  }
  if (tail && spec.c == DType::kF16) {
    reason = "f16 has no bias and no map of its own here: take C in f32";
    return nullptr;
  }
  const CublasLtChoice& choice = state_->choice(spec);
  reason = choice.reason;
  if (!choice.found) return nullptr;
  return std::make_unique<LibraryGemm>(*state_, spec, choice);
}

std::string CublasLt::version() const {
  const std::size_t number = state_->lt.cublasLtGetVersion();
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace tenon::cuda
