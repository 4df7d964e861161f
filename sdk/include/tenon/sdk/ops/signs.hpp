// Operator family of a device for signs: a vector as one bit per element with one scale for all, and the mean
// of several such vectors. Strategies send them in place of gradients (Karimireddy et al. 2019, arXiv
// 1901.09847). Optional: a device offers it to the strategies that ask for it. Conventions are those of
// <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

TENON_ABI_BEGIN

/// Place of a vector in a row of bytes: the first byte of its scale, a little-endian f32, and that of its
/// bits. Element i is bit i % 8, counted from the lowest, of byte i / 8; bits after the last element are 0.
/// Any byte offset is allowed; the two do not overlap.
struct SignPlace {
  std::int64_t scale = 0, bits = 0;
};

/// x, lost and mean: f32 or f64, of equal length and dtype within a call, in any shape.
class SignOps {
 public:
  static constexpr const char* kId = "tenon.device.signs/1";
  virtual ~SignOps();
  /// Bytes of scratch that encode needs.
  virtual std::size_t encode_scratch(std::int64_t elements) const = 0;
  /// Writes at `place` of `row` (u8): scale = mean |x|, summed in f64 in an order that depends on the length
  /// alone and rounded once, 0 for no elements; a bit is 1 where x < 0, so zeros of either sign and NaN are
  /// not negative. NaN and infinity enter the scale, hence every element of a mean. lost = x - (x < 0 ?
  /// -scale : scale), unless it is empty; it may be x.
  virtual void encode(TensorView x, TensorView row, SignPlace place, TensorView lost, TensorView scratch) = 0;
  /// mean = (1 / K) times the sum of +-scale over the rows [K, bytes] (u8) in their order, K at least 1; all
  /// of it in mean's dtype.
  virtual void decode(TensorView rows, SignPlace place, TensorView mean) = 0;
};

TENON_ABI_END
