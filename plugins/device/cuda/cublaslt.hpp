// The part of cuBLASLt's C interface that is used: its functions, found at run time, owners of its handles,
// and a check that keeps the library's own words. Included by the sources that call it
// alone.
#pragma once

#include "dynamic_library.hpp"
#include "queue.hpp"

#include <tenon/error.hpp>

#include <cublasLt.h>
#include <fmt/format.h>

#include <memory>
#include <string>

namespace tenon::cuda {

/// Under their names in the header.
struct CublasLtFunctions {
  // NOLINTBEGIN(bugprone-macro-parentheses): names, in places where parentheses are not allowed
#define TENON_CUBLASLT(name) decltype(::name)* name = nullptr
  TENON_CUBLASLT(cublasLtCreate);
  TENON_CUBLASLT(cublasLtDestroy);
  TENON_CUBLASLT(cublasLtGetVersion);
  TENON_CUBLASLT(cublasLtGetStatusName);
  TENON_CUBLASLT(cublasLtGetStatusString);
  TENON_CUBLASLT(cublasLtMatmul);
  TENON_CUBLASLT(cublasLtMatmulAlgoGetHeuristic);
  TENON_CUBLASLT(cublasLtMatmulDescCreate);
  TENON_CUBLASLT(cublasLtMatmulDescDestroy);
  TENON_CUBLASLT(cublasLtMatmulDescSetAttribute);
  TENON_CUBLASLT(cublasLtMatrixLayoutCreate);
  TENON_CUBLASLT(cublasLtMatrixLayoutDestroy);
  TENON_CUBLASLT(cublasLtMatrixLayoutSetAttribute);
  TENON_CUBLASLT(cublasLtMatmulPreferenceCreate);
  TENON_CUBLASLT(cublasLtMatmulPreferenceDestroy);
  TENON_CUBLASLT(cublasLtMatmulPreferenceSetAttribute);
#undef TENON_CUBLASLT

  explicit CublasLtFunctions(DynamicLibrary& library) {
#define TENON_CUBLASLT(name) library.resolve(#name, name)
    TENON_CUBLASLT(cublasLtCreate);
    TENON_CUBLASLT(cublasLtDestroy);
    TENON_CUBLASLT(cublasLtGetVersion);
    TENON_CUBLASLT(cublasLtGetStatusName);
    TENON_CUBLASLT(cublasLtGetStatusString);
    TENON_CUBLASLT(cublasLtMatmul);
    TENON_CUBLASLT(cublasLtMatmulAlgoGetHeuristic);
    TENON_CUBLASLT(cublasLtMatmulDescCreate);
    TENON_CUBLASLT(cublasLtMatmulDescDestroy);
    TENON_CUBLASLT(cublasLtMatmulDescSetAttribute);
    TENON_CUBLASLT(cublasLtMatrixLayoutCreate);
    TENON_CUBLASLT(cublasLtMatrixLayoutDestroy);
    TENON_CUBLASLT(cublasLtMatrixLayoutSetAttribute);
    TENON_CUBLASLT(cublasLtMatmulPreferenceCreate);
    TENON_CUBLASLT(cublasLtMatmulPreferenceDestroy);
    TENON_CUBLASLT(cublasLtMatmulPreferenceSetAttribute);
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

/// Packed, columns first: `rows` neighbours in memory.
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

inline CublasLtOwned<cublasLtMatmulPreferenceOpaque_t> make_preference(const CublasLtFunctions& lt) {
  cublasLtMatmulPreference_t made = nullptr;
  TENON_LT(lt, cublasLtMatmulPreferenceCreate, &made);
  return {made, lt.cublasLtMatmulPreferenceDestroy};
}

}  // namespace tenon::cuda
