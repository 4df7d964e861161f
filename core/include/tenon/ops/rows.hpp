// Operator family of a device for rows of tables: embeddings. Conventions are those of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

TENON_ABI_BEGIN

/// Gather and scatter of rows. ids: i32 [n]; table, gradient: [rows, width] f32 (f64); out: [n, width].
class EmbeddingOps {
 public:
  static constexpr const char* kId = "tenon.device.embedding/1";
  virtual ~EmbeddingOps();
  virtual void gather(TensorView table, TensorView ids, TensorView out, bool accumulate) = 0;
  /// gradient[ids[i]] += dy[i], duplicates in ascending i. scratch: scatter_scratch().
  virtual void scatter_add(TensorView dy, TensorView ids, TensorView gradient, TensorView scratch) = 0;
  virtual std::size_t scatter_scratch(std::int64_t ids, std::int64_t rows) const = 0;
};

TENON_ABI_END
