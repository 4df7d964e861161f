// The arithmetic of quantizer.hpp. Blocks are independent, so neither threads nor vector units change a bit.
#include "quantizer.hpp"

#include <tenon/parallel.hpp>

#include <algorithm>
#include <bit>
#include <limits>

namespace int8_block {
namespace {

constexpr std::int64_t kTile = 64;        // columns that are quantized together when blocks run down
constexpr std::int64_t kItems = 1 << 14;  // elements of one parallel block

/// |x| as bits: in their order numbers come first, then infinity, then NaN, so an integer maximum loses none
/// of them.
std::uint32_t magnitude(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
}

/// Scale of a block whose largest magnitude has these bits.
float scale_of(std::uint32_t amax) {
  constexpr std::uint32_t kInfinity = 0x7f800000u;
  return amax < kInfinity ? std::bit_cast<float>(amax) / 127.0f : std::numeric_limits<float>::quiet_NaN();
}

// [quantize]
/// The decoded value of x. Adding and subtracting 1.5 * 2^23 rounds to nearest even what is below 2^22, in
/// any vector unit.
float through_int8(float x, float scale) {
  constexpr float kRound = 12582912.0f;
  if (scale == 0.0f) return 0.0f;
  const float code = std::clamp((x / scale + kRound) - kRound, -127.0f, 127.0f);
  return code * scale;
}
// [/quantize]

}  // namespace

void quantize_along_rows(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t block,
                         float* values) {
  const std::int64_t lines = std::max<std::int64_t>(1, kItems / std::max<std::int64_t>(1, columns));
  tenon::parallel_for(rows, lines, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      for (std::int64_t begin = 0; begin < columns; begin += block) {
        const std::int64_t offset = row * columns + begin, count = std::min(block, columns - begin);
        std::uint32_t amax = 0;
        for (std::int64_t i = 0; i < count; ++i) amax = std::max(amax, magnitude(x[offset + i]));
        const float scale = scale_of(amax);
        for (std::int64_t i = 0; i < count; ++i) values[offset + i] = through_int8(x[offset + i], scale);
      }
    }
  });
}

void quantize_along_columns(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t block,
                            float* values) {
  const std::int64_t blocks = (rows + block - 1) / block, tiles = (columns + kTile - 1) / kTile;
  tenon::parallel_for(blocks * tiles, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t item = first; item < last; ++item) {
      const std::int64_t top = item / tiles * block, bottom = std::min(rows, top + block);
      const std::int64_t left = item % tiles * kTile, width = std::min(kTile, columns - left);
      std::uint32_t amax[kTile] = {};
      float scale[kTile];
      for (std::int64_t row = top; row < bottom; ++row) {
        const std::int64_t offset = row * columns + left;
        for (std::int64_t i = 0; i < width; ++i) amax[i] = std::max(amax[i], magnitude(x[offset + i]));
      }
      for (std::int64_t i = 0; i < width; ++i) scale[i] = scale_of(amax[i]);
      for (std::int64_t row = top; row < bottom; ++row) {
        const std::int64_t offset = row * columns + left;
        for (std::int64_t i = 0; i < width; ++i) values[offset + i] = through_int8(x[offset + i], scale[i]);
      }
    }
  });
}

}  // namespace int8_block
