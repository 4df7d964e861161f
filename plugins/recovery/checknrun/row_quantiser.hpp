// Rows of float32 in 8, 4, 3 or 2 bits per element: per-row uniform asymmetric quantisation, with a range
// that adapts to the row for 4 bits and fewer (Check-N-Run, NSDI 2022; papers/recovery.md section 2.2). Used
// by the row encodings of recovery `checknrun`; independent of tables and files.
//
// An encoded row, little-endian:
//   float32 lowest, float32 step, then ceil(width * bits / 8) bytes of codes
// Code i occupies bits [i * bits, (i + 1) * bits) counted from the lowest bit of the first byte, the bits
// after the last code are zero, and element i is lowest + code * step. A step of NaN marks a row that holds
// infinities or NaNs: its `width` float32 values replace the codes, unchanged.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tenon::recovery_checknrun {

enum class RowFit {
  kUniform,   ///< from the lowest to the highest element
  kAdaptive,  ///< from clipped ends with a small L2 error; the same as kUniform for 8 bits
};

/// 8, 4, 3 or 2: the only valid values of `bits` in the functions below.
bool quantises_to(int bits);

/// Bytes of an encoded row of `width` finite elements.
std::size_t quantised_bytes(std::size_t width, int bits);
/// Bytes of an encoded row with an infinity or a NaN.
std::size_t verbatim_bytes(std::size_t width);

/// Appends the encoded row to `out`, verbatim_bytes or quantised_bytes long.
///
/// kUniform: the error of an element is at most range / (2 (2^bits - 1)) + 2 ulp, range = highest - lowest,
/// ulp that of the greatest magnitude in the row. kAdaptive: clipped elements may have larger errors, but the
/// L2 error of the decoded row is never above that of kUniform. A row of one value decodes to that value in
/// both, and a verbatim one to the same bits.
void encode_row(std::span<const float> row, int bits, RowFit fit, std::vector<std::byte>& out);

/// Decodes the row at the beginning of `in` into `out`, one element per element of the row, and returns its
/// bytes. Returns 0 and leaves `out` unchanged if `in` is too short or no encoder wrote its first eight
/// bytes. Does not detect damaged codes; the store has checksums.
std::size_t decode_row(std::span<const std::byte> in, int bits, std::span<float> out);

}  // namespace tenon::recovery_checknrun
