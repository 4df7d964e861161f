// Symmetric int8 with one f32 scale per block of consecutive numbers:
//   scale = amax / 127        code = round to nearest even(x / scale), within [-127, 127]        value = code
//   * scale
// A block of zeros keeps them; so does one whose scale is too small for f32. A block that holds an infinity
// or a NaN becomes NaN as a whole, so that no overflow is hidden. The last block of a line may be shorter.
// Host memory.
#pragma once

#include <cstdint>

namespace int8_block {

/// Blocks along each row of x [rows, columns]. values: the decoded numbers, of the same shape; may be x
/// itself.
void quantize_along_rows(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t block,
                         float* values);

/// Blocks down each column.
void quantize_along_columns(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t block,
                            float* values);

}  // namespace int8_block
