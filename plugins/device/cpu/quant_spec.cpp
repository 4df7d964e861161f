// Split of matrices for parallel loops of quantizers.
#include "quant.hpp"

#include <numeric>

namespace tenon::cpu {

Bands::Bands(const QuantizeSpec& spec) {
  constexpr std::int64_t kGroup = 16;
  const bool whole = spec.scale == BlockScale::kTensor;
  const std::int64_t down = whole ? 1 : spec.block_rows;
  const std::int64_t unit = whole ? kGroup : std::lcm(spec.block_columns, kGroup);
  const std::int64_t columns = std::max<std::int64_t>(1, spec.columns);
  width = columns;
  // A strip of blocks across a wide matrix would be more than a thread's share.
  if (down * columns > 2 * kFlatBlock && unit < columns) {
    width = blocks_of(std::max<std::int64_t>(1, kFlatBlock / down), unit) * unit;
    width = std::min(width, columns);
  }
  height = down * std::max<std::int64_t>(1, kFlatBlock / (width * down));
  across = blocks_of(columns, width);
  count = spec.columns == 0 ? 0 : across * blocks_of(spec.rows, height);
}

}  // namespace tenon::cpu
