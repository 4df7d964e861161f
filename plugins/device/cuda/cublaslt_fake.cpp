// A fake cuBLASLt for tests: the functions that gemm_cublaslt.cpp uses, as loops on host memory, as strict as
// the library. It knows column-major matrices alone, so a test on it shows that ours are passed correctly.
// Each sum is one chain over k, like those of our own kernels.
#include "cublaslt_fake.hpp"

#include <tenon/kernels/cuda/maps.hpp>
#include <tenon/kernels/cuda/storage.hpp>

#include <cublasLt.h>

#include <cmath>
#include <cstring>

namespace {

using tenon::kernels::Bf16;

constexpr std::uint64_t kAlgorithm = 0x7e40'2026;
constexpr std::size_t kWorkspace = 1000;
tenon::cuda::FakeCublasLt state;

struct Matrix {
  cudaDataType_t type;
  std::int64_t rows, columns, ld;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
};
struct Product {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int32_t a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, b_mode = a_mode;
  const void *a_scales = nullptr, *b_scales = nullptr;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
};

template <class T, class Opaque>
T& as(Opaque* handle) {
  return *reinterpret_cast<T*>(handle);
}

template <class T>
cublasStatus_t set(T& field, const void* value, std::size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool is_fp8(cudaDataType_t type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

bool is_code(cudaDataType_t type) {
  return is_fp8(type) || type == CUDA_R_4F_E2M1;
}

/// Numbers of `exponent` and `mantissa` bits; neither infinities nor NaNs, which the tests do not use.
double small_float(std::uint8_t code, int exponent, int mantissa) {
  const int e = (code >> mantissa) & ((1 << exponent) - 1), m = code & ((1 << mantissa) - 1);
  const int bias = (1 << (exponent - 1)) - 1;
  const double fraction = std::ldexp(m, -mantissa);
  const double size = e == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, e - bias);
  return (code & 0x80) != 0 ? -size : size;
}

double load(cudaDataType_t type, const void* data, std::int64_t i) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(data)[i];
    case CUDA_R_16BF:
      return tenon::kernels::to_float(static_cast<const Bf16*>(data)[i]);
    case CUDA_R_8F_E4M3:
      return small_float(static_cast<const std::uint8_t*>(data)[i], 4, 3);
    case CUDA_R_8F_E5M2:
      return small_float(static_cast<const std::uint8_t*>(data)[i], 5, 2);
    case CUDA_R_4F_E2M1: {
      const int pair = static_cast<const std::uint8_t*>(data)[i / 2];
      const int code = i % 2 == 0 ? pair & 15 : pair >> 4;
      return small_float(static_cast<std::uint8_t>((code & 8) << 4 | (code & 7)), 2, 1);
    }
    default:
      return static_cast<const float*>(data)[i];
  }
}

template <class T>
void store(cudaDataType_t type, void* data, std::int64_t i, T value) {
  if (type == CUDA_R_64F) {
    static_cast<double*>(data)[i] = value;
  } else if (type == CUDA_R_16BF) {
    static_cast<Bf16*>(data)[i] = tenon::kernels::to_bf16(static_cast<float>(value));
  } else {
    static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

std::int64_t rows_of(const Matrix& matrix, cublasOperation_t op) {
  return op == CUBLAS_OP_N ? matrix.rows : matrix.columns;
}
std::int64_t columns_of(const Matrix& matrix, cublasOperation_t op) {
  return op == CUBLAS_OP_N ? matrix.columns : matrix.rows;
}

/// Scale of element (l, j) of a matrix of `k` rows: by block from tiles of 128 columns and 4 blocks, in the
/// order drawn in the library's manual.
double block_scale(std::int32_t mode, const void* scales, std::int64_t k, std::int64_t l, std::int64_t j) {
  if (mode != CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3 && mode != CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0)
    return 1;
  const bool fours = mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
  const std::int64_t block = fours ? 16 : 32, tiles = (k / block + 3) / 4, i = l / block;
  const std::int64_t tile = j / 128 * tiles + i / 4;
  const std::uint8_t code =
      static_cast<const std::uint8_t*>(scales)[tile * 512 + j % 32 * 16 + j / 32 % 4 * 4 + i % 4];
  return fours ? small_float(code, 4, 3) : std::ldexp(1.0, code - 127);
}

/// The library's conditions for codes: only the first operand is transposed, rows of 16 bytes, and scales of
/// both sides in one mode that matches them.
cublasStatus_t judge_codes(const Product& p, const Matrix& a, const Matrix& b, const Matrix& c) {
  const bool fours = a.type == CUDA_R_4F_E2M1;
  if (fours != (b.type == CUDA_R_4F_E2M1) || !is_code(b.type) || p.a_mode != p.b_mode)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (fours != (p.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.a_mode > CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  const std::int64_t multiple = fours || p.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 ? 32 : 16;
  if (p.a != CUBLAS_OP_T || p.b != CUBLAS_OP_N || a.rows % multiple != 0 || a.ld != a.rows ||
      (c.type != CUDA_R_32F && c.type != CUDA_R_16BF))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool scaled = p.a_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  for (const void* scales : {p.a_scales, p.b_scales}) {
    if (scaled != (scales != nullptr) || reinterpret_cast<std::uintptr_t>(scales) % 16 != 0)
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  // Rows of the result, where the library has been strict about codes.
  if (scaled && c.rows % 16 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

/// op(A) op(B) where C is large enough, in types and with an epilogue that the library knows.
cublasStatus_t judge(const Product& p, const Matrix& a, const Matrix& b, const Matrix& c) {
  const std::int64_t m = rows_of(a, p.a), n = columns_of(b, p.b), k = columns_of(a, p.a);
  if (rows_of(b, p.b) != k || c.rows != m || c.columns != n || a.batch != c.batch || b.batch != c.batch)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool f64 = p.scale == CUDA_R_64F;
  if (p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (f64 != (a.type == CUDA_R_64F) || f64 != (p.compute == CUBLAS_COMPUTE_64F))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (is_code(a.type)) {
    const cublasStatus_t status = judge_codes(p, a, b, c);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  } else if (a.type != b.type || (c.type != a.type && !(a.type == CUDA_R_16BF && c.type == CUDA_R_32F))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT && f64) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
void multiply(const Product& p, T alpha, const void* a, const Matrix& ma, const void* b, const Matrix& mb,
              T beta, void* c, const Matrix& mc) {
  const std::int64_t k = columns_of(ma, p.a);
  for (std::int64_t product = 0; product < mc.batch; ++product)
    for (std::int64_t j = 0; j < mc.columns; ++j)
      for (std::int64_t i = 0; i < mc.rows; ++i) {
        T sum = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const std::int64_t in_a = p.a == CUBLAS_OP_N ? i + l * ma.ld : l + i * ma.ld;
          const std::int64_t in_b = p.b == CUBLAS_OP_N ? l + j * mb.ld : j + l * mb.ld;
          // In the order of the factors of a row-major product; the bits are the same.
          sum += static_cast<T>(load(mb.type, b, product * mb.stride + in_b) *
                                block_scale(p.b_mode, p.b_scales, k, l, j)) *
                 static_cast<T>(load(ma.type, a, product * ma.stride + in_a) *
                                block_scale(p.a_mode, p.a_scales, k, l, i));
        }
        const std::int64_t at = product * mc.stride + i + j * mc.ld;
        sum = alpha * sum;
        if (p.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)
          sum = static_cast<T>(static_cast<const float*>(p.b_scales)[j] *
                               static_cast<const float*>(p.a_scales)[i]) *
                sum;
        if (beta != 0) sum = sum + beta * static_cast<T>(load(mc.type, c, at));
        // A bias has C's type and belongs to rows.
        if (p.epilogue == CUBLASLT_EPILOGUE_BIAS) sum = sum + static_cast<T>(load(mc.type, p.bias, i));
        if (p.epilogue == CUBLASLT_EPILOGUE_GELU)
          sum = tenon::kernels::cuda::mapped(tenon::kernels::cuda::Map::kGeluTanh, sum);
        store(mc.type, c, at, sum);
      }
}

bool aligned(const void* pointer, std::uintptr_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

}  // namespace

namespace tenon::cuda {
FakeCublasLt& fake_cublaslt() {
  return state;
}
}  // namespace tenon::cuda

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&state);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}
std::size_t cublasLtGetVersion() {
  return 130203;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "NAME_OF_UNSUPPORTED" : "NAME_OF_FAILURE";
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "has no such thing" : "did not work";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  ++state.alive;
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Product{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  --state.alive;
  delete &as<Product>(product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  auto& p = as<Product>(product);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(p.a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(p.b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(p.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(p.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return set(p.a_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return set(p.b_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(p.a_scales, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(p.b_scales, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t ld) {
  ++state.alive;
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Matrix{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix) {
  --state.alive;
  delete &as<Matrix>(matrix);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  auto& m = as<Matrix>(matrix);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return set(m.batch, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return set(m.stride, value, bytes);
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  ++state.alive;
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  --state.alive;
  delete &as<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  auto& p = as<Preference>(preference);
  std::uint32_t alignment = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(p.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(p.reduction, value, bytes);
    default:
      return set(alignment, value, bytes);
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* result, int* count) {
  ++state.asked;
  *count = 0;
  if (c != d) return CUBLAS_STATUS_INVALID_VALUE;
  if (state.declines) return CUBLAS_STATUS_NOT_SUPPORTED;
  const cublasStatus_t status = judge(as<Product>(product), as<Matrix>(a), as<Matrix>(b), as<Matrix>(c));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const std::int64_t k = columns_of(as<Matrix>(a), as<Product>(product).a);
  *result = {};
  result->algo.data[0] = kAlgorithm;
  result->state = CUBLAS_STATUS_SUCCESS;
  result->workspaceSize = k > 30 && as<Preference>(preference).workspace >= kWorkspace ? kWorkspace : 0;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t) {
  ++state.multiplied;
  if (state.fails) return CUBLAS_STATUS_EXECUTION_FAILED;
  const auto& p = as<Product>(product);
  const auto &ma = as<Matrix>(a_layout), &mb = as<Matrix>(b_layout), &mc = as<Matrix>(c_layout);
  const cublasStatus_t status = judge(p, ma, mb, mc);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (p.compute == CUBLAS_COMPUTE_32F_FAST_TF32) ++state.rounded;
  const std::size_t wanted = columns_of(ma, p.a) > 30 ? kWorkspace : 0;
  const bool biased = p.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (algorithm->data[0] != kAlgorithm || c != d || workspace_bytes < wanted || !aligned(workspace, 256) ||
      !aligned(a, 16) || !aligned(b, 16) || !aligned(c, 16) ||
      (biased && (p.bias == nullptr || !aligned(p.bias, 16))))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace_bytes > 0) std::memset(workspace, 0xEE, workspace_bytes);
  if (p.scale == CUDA_R_64F) {
    multiply(p, *static_cast<const double*>(alpha), a, ma, b, mb, *static_cast<const double*>(beta), d, mc);
  } else {
    multiply(p, *static_cast<const float*>(alpha), a, ma, b, mb, *static_cast<const float*>(beta), d, mc);
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
