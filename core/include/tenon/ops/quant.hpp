// Operator families of a device for block-scaled number formats. A quantizer rounds one matrix to codes and
// scales; products then run on `values`, which hold what the codes stand for exactly, and the scale of the
// whole matrix goes into the product's alpha. Formats and order of operations: docs/formats.md. A device may
// also multiply two operands as quantizers wrote them, codes and scales, on units that read such numbers. One
// that does not multiplies decoded values; the operands are the same numbers, and only the order of the sums
// in f32 may differ.
#pragma once

#include <tenon/ops/dense.hpp>
#include <tenon/random.hpp>

#include <memory>
#include <string>

TENON_ABI_BEGIN

/// Format of one code. Values reach files: do not renumber.
enum class ElementFormat : std::uint8_t { kE2M1 = 0, kE2M3 = 1, kE3M2 = 2, kE4M3 = 3, kE5M2 = 4 };

/// Kind of scales that a matrix has.
enum class BlockScale : std::uint8_t {
  kTensor = 0,    ///< one f32 for the matrix (FP8 per tensor)
  kTwoLevel = 1,  ///< E4M3 per block and one f32 for the matrix
  kPower = 2,     ///< a power of two per block: E8M0 (MX)
  kFloat = 3,     ///< f32 per block (block FP8)
};

/// Rule that derives a power of two from the block's largest magnitude.
enum class PowerRule : std::uint8_t { kFloor = 0, kCeil = 1, kEven = 2, kRoundUp = 3 };

enum class RoundingMode : std::uint8_t { kNearestEven = 0, kStochastic = 1 };

/// A matrix [rows, columns], row-major, and how it is quantized. Blocks begin at row 0 and column 0; those at
/// the end may be smaller.
struct QuantizeSpec {
  std::int64_t rows = 0, columns = 0;
  DType input = DType::kBF16;  ///< bf16 or f32
  ElementFormat element = ElementFormat::kE2M1;
  BlockScale scale = BlockScale::kTwoLevel;
  PowerRule power = PowerRule::kRoundUp;            ///< kPower only
  std::int64_t block_rows = 1, block_columns = 16;  ///< not read for kTensor
  RoundingMode rounding = RoundingMode::kNearestEven;
  int random_bits = 8;         ///< 8 or 24, of stochastic rounding
  bool rotate = false;         ///< 16-point randomised Hadamard transform along the block first (1x16, 16x1)
  bool four_over_six = false;  ///< kTwoLevel: of two block scales the one with the smaller squared error
  bool line_scale = false;  ///< kTwoLevel: one f32 per line of blocks (row for 1xB, column for Bx1) instead
                            ///< of one for the matrix
};

/// Origin of the draws of stochastic rounding: functions of (key, step, micro, global index) alone.
struct QuantizeDraws {
  RandomKey key;
  std::uint64_t step = 0;
  std::uint32_t micro = 0;
  std::int64_t origin_row = 0, origin_column = 0;  ///< of this matrix in the global one
};

/// Output of a quantizer; empty views are not written.
struct QuantizeOutput {
  /// bf16 [padded_rows, columns] (rotate along rows pads): element x block scale, or, for kTensor and kFloat,
  /// the element alone.
  TensorView values;
  TensorView codes;        ///< u8, code_bytes(): codes as stored, E2M1 two per byte along a row
  TensorView scales;       ///< scale_bytes(): u8 (kTwoLevel, kPower) or f32 (kFloat) per block, row-major
  TensorView line_scales;  ///< f32 decode scales, one per line (line_scale only)
};

/// Measured while quantizing, in f64, over all elements (of the rotated matrix, if it is rotated).
struct QuantizeStats {
  double amax = 0;
  double signal = 0, noise = 0;  ///< sums of x^2 and of (x - decoded)^2
  double relative_error = 0;     ///< mean of |x - decoded| / |x| over x != 0
  double underflow = 0;          ///< fraction of x != 0 that decode to 0
  double saturated = 0;          ///< fraction whose scaled magnitude exceeds the largest element
  double scale_min = 0,
         scale_max = 0;  ///< of the blocks' decode scales, tensor scale included, zeros left out
};

/// A prepared quantizer; run() allocates nothing.
class QuantizeKernel {
 public:
  virtual ~QuantizeKernel();
  virtual std::int64_t padded_rows() const = 0;
  virtual std::size_t code_bytes() const = 0;
  virtual std::size_t scale_bytes() const = 0;
  virtual std::size_t scratch_bytes() const = 0;
  /// True if run() needs the matrix' largest magnitude: kTensor and kTwoLevel without line_scale.
  virtual bool needs_amax() const = 0;
  /// Largest magnitude of x (of the rotated x); NaN if x holds a NaN, infinity if it holds one.
  virtual float amax(TensorView x, TensorView scratch) = 0;
  /// Returns the decode scale of the matrix (1 where it has none): the product's alpha. With an amax that is
  /// NaN or infinite, or a block that holds such an element, the scale is NaN, so that the product shows it.
  /// `stats` may be null; measuring costs a slow pass.
  virtual float run(TensorView x, float amax, const QuantizeDraws& draws, const QuantizeOutput& out,
                    TensorView scratch, QuantizeStats* stats) = 0;
  /// values (as in QuantizeOutput) from stored codes and scales.
  virtual void decode(TensorView codes, TensorView scales, TensorView values) = 0;
};

/// Scales of the lines (rows of A, or columns of B) of a product in one block of the contracted dimension:
/// line i has scales[first + i / lines * step]. Without scales every line has 1.
struct ProductScales {
  TensorView scales;  ///< f32
  std::int64_t lines = 1;
  std::int64_t first = 0, step = 1;
};

class QuantOps {
 public:
  static constexpr const char* kId = "tenon.device.quant/1";
  virtual ~QuantOps();
  /// Throws Error(kConfig) with the reason for a combination that is not defined (rotation of blocks other
  /// than 16, stochastic rounding of formats without it, ...).
  virtual std::unique_ptr<QuantizeKernel> quantizer(const QuantizeSpec& spec) = 0;
  /// c[i, j] (+)= (scale of row i * scale of column j) * p[i, j], in f32: the partial product of one block of
  /// the contracted dimension under f32 scales.
  virtual void scale_product(TensorView p, const ProductScales& a, const ProductScales& b, TensorView c,
                             bool accumulate) = 0;
  /// y = x rounded to IEEE binary16 (nearest even, subnormals kept, overflow to infinity), as f32. May be x
  /// itself. Returns how many elements became infinite or zero that were not: {overflow, underflow}.
  struct HalfCount {
    std::int64_t overflow = 0, underflow = 0;
  };
  virtual HalfCount round_to_f16(TensorView x, TensorView y) = 0;
};

/// Format of a quantized operand, as in QuantizeSpec, and the extents of its blocks as stored.
struct ScaledOperand {
  ElementFormat element = ElementFormat::kE2M1;
  BlockScale scale = BlockScale::kTwoLevel;
  std::int64_t block_rows = 1, block_columns = 16;  ///< not read for kTensor
};

struct ScaledProductSpec {
  /// One product; the dtypes of a and b are not read, C is f32 or bf16.
  GemmSpec product;
  ScaledOperand a, b;
};

/// The `codes` that QuantizeKernel::run() wrote and its `scales`, which kTensor does not have. A rotated
/// matrix includes the rows of its padding.
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
  /// Returns "" if prepare() returns this product; else the reason, in the library's own words where one was
  /// asked.
  virtual std::string refusal(const ScaledProductSpec& spec) = 0;
  /// Throws Error(kConfig) with the reason where refusal() has one.
  virtual std::unique_ptr<ScaledProduct> prepare(const ScaledProductSpec& spec) = 0;
};

TENON_ABI_END
