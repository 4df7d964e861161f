// Quantizing a matrix to block-scaled codes: the arguments, the same for the plain reference and for every
// kernel set, which must agree bit for bit. Formats: formats.hpp; scales: scales.hpp. Order of operations of
// NVFP4: arXiv 2509.25149 appendix B as TransformerEngine computes it; of MX: OCP Microscaling 1.0.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

enum class Element : std::uint8_t { kE2M1 = 0, kE2M3 = 1, kE3M2 = 2, kE4M3 = 3, kE5M2 = 4 };
enum class Scaling : std::uint8_t { kTensor = 0, kTwoLevel = 1, kPower = 2, kFloat = 3 };
enum class PowerRule : std::uint8_t { kFloor = 0, kCeil = 1, kEven = 2, kRoundUp = 3 };

/// The numbers of the whole matrix (or of one line, with a scale per line).
struct TensorScale {
  float encode = 1;  ///< s_enc
  float decode = 1;  ///< s_dec
  float block = 1;   ///< kTwoLevel: k, the factor of a block's amax
};

/// A band [rows, columns] of a matrix, which begins where blocks begin. Element (i, j) is x[i * stride + j].
/// Columns are split into blocks from 0; `rows` is a multiple of block_rows except in the last band.
template <class S>
struct QuantizeArgs {
  const S* x = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
  Element element = Element::kE2M1;
  Scaling scaling = Scaling::kTwoLevel;
  PowerRule power = PowerRule::kRoundUp;
  std::int64_t block_rows = 1, block_columns = 16;  ///< kTensor: not read
  bool stochastic = false;
  int random_bits = 8;  ///< 8 or 24
  bool rotate = false;  ///< rotated along the block, which is 1x16 or 16x1
  bool four_over_six = false;
  TensorScale tensor = {};
  const TensorScale* lines = nullptr;  ///< one per line (row of 1xB, column of Bx1) instead of `tensor`
  /// Stochastic rounding. 16 elements along the block's long side (columns for kTensor and square blocks) are
  /// one group; its draws are Philox words of counter {group, line, step, micro * 4 + part} where group and
  /// line are global, line that of the other dimension. 8 bits: element e of the group takes byte e % 4 of
  /// word e / 4 of part 0. 24 bits: the low 24 bits of word e % 4 of part e / 4.
  std::uint64_t key = 0;
  std::uint64_t step = 0;
  std::uint32_t micro = 0;
  std::int64_t origin_row = 0, origin_column = 0;  ///< global position of x[0]
  /// Results; null = not wanted.
  Bf16* values = nullptr;  ///< element x block scale (kTwoLevel, kPower), else the element
  std::int64_t values_stride = 0;
  std::uint8_t* codes = nullptr;  ///< one per byte, or E2M1 packed: columns 2i (low nibble) and 2i + 1
  std::int64_t codes_stride = 0;  ///< bytes of a row
  bool packed = false;
  std::uint8_t* scales = nullptr;  ///< kTwoLevel, kPower: bits; one per block
  float* float_scales = nullptr;   ///< kFloat: decode scale of the block
  std::int64_t scales_stride = 0;  ///< blocks of a row of blocks
  /// Raised to the bits of the largest magnitude of a block (rotated, if so); kTensor leaves it unchanged.
  /// Null = not wanted.
  std::uint32_t* magnitude = nullptr;
};

/// Rotating along rows pads the last block with zeros, so fewer rows of x produce 16 rows of values.
template <class S>
struct QuantizeOps {
  /// Bits of the largest magnitude (sign cleared), so that infinity and NaN are larger than all numbers.
  std::uint32_t (*amax)(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride);
  /// The same of the rotated band; along rows (blocks 16x1) or columns (1x16).
  std::uint32_t (*amax_rotated)(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                bool along_rows);
  void (*quantize)(const QuantizeArgs<S>& args);
  /// values from codes and scales; x is not read.
  void (*dequantize)(const QuantizeArgs<S>& args);
};

}  // namespace tenon::kernels
