// Operator families of a device that move parts of tensors: boxes, and rows of tables. Conventions are those
// of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

TENON_ABI_BEGIN

/// Copies, adds or fills boxes of tensors. Packing and unpacking of messages, pads and crops are made of it.
/// A device whose memory is the host's does not need it: code for all devices copies lines there itself.
/// Tensors are row-major; boxes are within them and have as many dimensions, and the two of a call have equal
/// extents. A call must not write memory that it reads. It does nothing for a box without elements.
class StridedCopyOps {
 public:
  static constexpr const char* kId = "tenon.device.boxes/1";
  virtual ~StridedCopyOps();
  /// Box `target` of `to` = box `source` of `from`; of any one dtype of whole bytes. Elements of `to` outside
  /// stay as they are.
  virtual void copy(TensorView from, const Box& source, TensorView to, const Box& target) = 0;
  /// Box `target` of `to` += box `source` of `from`, each sum rounded once; f32, f64, bf16 and complex
  /// numbers. The adjoint of a copy, since no other copy writes the same target.
  virtual void add(TensorView from, const Box& source, TensorView to, const Box& target) = 0;
  /// `value` in every element of a box; f32, f64 and bf16, and 0 in any dtype of whole bytes.
  virtual void fill(TensorView x, const Box& box, double value) = 0;
};

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
