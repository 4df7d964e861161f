// The part of cuBLASLt's C interface that is used: its functions, found at run time, owners of its handles,
// and a check that keeps the library's own words. Only the sources that call it include it.
#pragma once

#include "dynamic_library.hpp"
#include "queue.hpp"

#include <tenon/error.hpp>

#include <cublasLt.h>
#include <fmt/format.h>

#include <memory>
#include <string>

namespace tenon::cuda {

// NOLINTBEGIN(bugprone-macro-parentheses): names, in places where parentheses are not allowed
/// each(name); for every function that is used, without the last semicolon.
#define TENON_CUBLASLT_FUNCTIONS(each)    \
  each(cublasLtCreate);                   \
  each(cublasLtDestroy);                  \
  each(cublasLtGetVersion);               \
  each(cublasLtGetStatusName);            \
  each(cublasLtGetStatusString);          \
  each(cublasLtMatmul);                   \
  each(cublasLtMatmulAlgoGetHeuristic);   \
  each(cublasLtMatmulDescCreate);         \
  each(cublasLtMatmulDescDestroy);        \
  each(cublasLtMatmulDescSetAttribute);   \
  each(cublasLtMatrixLayoutCreate);       \
  each(cublasLtMatrixLayoutDestroy);      \
  each(cublasLtMatrixLayoutSetAttribute); \
  each(cublasLtMatmulPreferenceCreate);   \
  each(cublasLtMatmulPreferenceDestroy);  \
  each(cublasLtMatmulPreferenceSetAttribute)

/// Under their names in the header.
struct CublasLtFunctions {
#define TENON_CUBLASLT(name) decltype(::name)* name = nullptr
  TENON_CUBLASLT_FUNCTIONS(TENON_CUBLASLT);
#undef TENON_CUBLASLT

  explicit CublasLtFunctions(DynamicLibrary& library) {
#define TENON_CUBLASLT(name) library.resolve(#name, name)
    TENON_CUBLASLT_FUNCTIONS(TENON_CUBLASLT);
#undef TENON_CUBLASLT
  }
  // NOLINTEND(bugprone-macro-parentheses)

  std::string text(cublasStatus_t status) const {
    return fmt::format("{} ({})", cublasLtGetStatusString(status), cublasLtGetStatusName(status));
  }
  void check(cublasStatus_t status, const char* call) const {
    if (status != CUBLAS_STATUS_SUCCESS)
      fail_run(fmt::format("device {}: {}: {}", kDeviceName, call, text(status)));
  }
};

#define TENON_LT(functions, name, ...) (functions).check((functions).name(__VA_ARGS__), #name)

/// Owner of one handle. Opaque is the struct that it points to.
template <class Opaque>
using CublasLtOwned = std::unique_ptr<Opaque, cublasStatus_t (*)(Opaque*)>;

inline CublasLtOwned<cublasLtMatmulDescOpaque_t> make_product(const CublasLtFunctions& lt,
                                                              cublasComputeType_t compute,
                                                              cudaDataType_t scale) {
  cublasLtMatmulDesc_t made = nullptr;
  TENON_LT(lt, cublasLtMatmulDescCreate, &made, compute, scale);
  return {made, lt.cublasLtMatmulDescDestroy};
}

/// Packed, column-major: `rows` neighbours in memory.
inline CublasLtOwned<cublasLtMatrixLayoutOpaque_t> make_matrix(const CublasLtFunctions& lt,
                                                               cudaDataType_t type, std::int64_t rows,
                                                               std::int64_t columns, std::int64_t batch) {
  cublasLtMatrixLayout_t made = nullptr;
  TENON_LT(lt, cublasLtMatrixLayoutCreate, &made, type, static_cast<std::uint64_t>(rows),
           static_cast<std::uint64_t>(columns), rows);
  CublasLtOwned<cublasLtMatrixLayoutOpaque_t> owner(made, lt.cublasLtMatrixLayoutDestroy);
  const auto count = static_cast<std::int32_t>(batch);
  const std::int64_t stride = rows * columns;
  TENON_LT(lt, cublasLtMatrixLayoutSetAttribute, made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
           sizeof(count));
  TENON_LT(lt, cublasLtMatrixLayoutSetAttribute, made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
           sizeof(stride));
  return owner;
}

/// Alignment in bytes of pointers, on which the algorithms may rely.
constexpr std::uint32_t kCublasLtAlignment = 16;

/// The library's choice of an algorithm; without one, the reason.
struct CublasLtChoice {
  bool found = false;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace = 0;
  std::string reason;
};

/// The library, started. A device's states derive from it.
struct CublasLtLibrary {
  CublasLtLibrary(Queue& q, const DynamicLibrary& opened) : queue(q), library(opened), lt(library) {}
  ~CublasLtLibrary() {
    if (handle != nullptr) lt.cublasLtDestroy(handle);
  }
  CublasLtLibrary(const CublasLtLibrary&) = delete;
  CublasLtLibrary& operator=(const CublasLtLibrary&) = delete;

  /// An algorithm for the product of these operands into `c`, which sums may be added to.
  CublasLtChoice choose(cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t first,
                        cublasLtMatrixLayout_t second, cublasLtMatrixLayout_t c) const {
    // Workspace limit of algorithms; the library's own advice for Hopper and later.
    constexpr std::uint64_t kMostWorkspace = std::uint64_t{32} << 20;
    cublasLtMatmulPreference_t made = nullptr;
    TENON_LT(lt, cublasLtMatmulPreferenceCreate, &made);
    const CublasLtOwned<cublasLtMatmulPreferenceOpaque_t> preference(made,
                                                                     lt.cublasLtMatmulPreferenceDestroy);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      TENON_LT(lt, cublasLtMatmulPreferenceSetAttribute, preference.get(), attribute, &value, sizeof(value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
    // Partial sums stay in the arithmetic type.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(attribute, kCublasLtAlignment);
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    cublasStatus_t status = lt.cublasLtMatmulAlgoGetHeuristic(handle, product, first, second, c, c,
                                                              preference.get(), 1, &result, &count);
    if (status == CUBLAS_STATUS_SUCCESS) status = count > 0 ? result.state : CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
      return {false, {}, 0, "cublasLtMatmulAlgoGetHeuristic: " + lt.text(status)};
    lt.check(status, "cublasLtMatmulAlgoGetHeuristic");
    return {true, result.algo, result.workspaceSize, ""};
  }

  Queue& queue;
  DynamicLibrary library;
  CublasLtFunctions lt;
  cublasLtHandle_t handle = nullptr;
};

/// A state around the library; null, and why, where it is absent or does not start.
template <class State>
std::unique_ptr<State> open_cublaslt(Queue& queue, std::string& reason) {
  const DynamicLibrary library(
      {"libcublasLt.so.13", "libcublasLt.so", "/usr/local/cuda/lib64/libcublasLt.so.13"});
  auto state = std::make_unique<State>(queue, library);
  if (!state->library.usable()) {
    reason = "cuBLASLt: " + state->library.reason();
    return nullptr;
  }
  const cublasStatus_t status = state->lt.cublasLtCreate(&state->handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    reason = "cublasLtCreate: " + state->lt.text(status);
    state->handle = nullptr;
    return nullptr;
  }
  return state;
}

}  // namespace tenon::cuda
