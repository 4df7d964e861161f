// Operator family of a device, optional: products of two operands as quantizers wrote them, codes and scales,
// on units that read such numbers. A device without it multiplies decoded values; the operands are the same
// numbers, and only the order of the sums in f32 may differ.
#pragma once

#include <tenon/operators.hpp>
#include <tenon/operators_quant.hpp>

#include <memory>
#include <string>

TENON_ABI_BEGIN

/// How an operand was quantized, as in QuantizeSpec, and the extents of its blocks as it is stored.
struct ScaledOperand {
  ElementFormat element = ElementFormat::kE2M1;
  BlockScale scale = BlockScale::kTwoLevel;
  std::int64_t block_rows = 1, block_columns = 16;  ///< not read for kTensor
};

struct ScaledProductSpec {
  /// Of one product; the dtypes of a and b are not read, C is f32 or bf16.
  GemmSpec product;
  ScaledOperand a, b;
};

/// What QuantizeKernel::run() wrote: its `codes` and its `scales`, which kTensor does not have. A matrix that
/// was rotated has the rows that it was padded to.
struct ScaledMatrix {
  TensorView codes, scales;
};

/// A prepared product; run() allocates nothing.
class ScaledProduct {
 public:
  virtual ~ScaledProduct();
  virtual std::size_t scratch_bytes() const = 0;
  /// C (+)= alpha op(A) op(B) (+ bias), then the map. alpha: the decode scales of both matrices, multiplied.
  virtual void run(const ScaledMatrix& a, const ScaledMatrix& b, TensorView c, TensorView bias, float alpha,
                   TensorView scratch) = 0;
};

class ScaledProducts {
 public:
  static constexpr const char* kId = "tenon.device.scaled/1";
  virtual ~ScaledProducts();
  /// "" if prepare() gives this product; else why not, in the library's own words where one was asked.
  virtual std::string refusal(const ScaledProductSpec& spec) = 0;
  /// Throws Error(kConfig) with the reason where refusal() has one.
  virtual std::unique_ptr<ScaledProduct> prepare(const ScaledProductSpec& spec) = 0;
};

TENON_ABI_END
