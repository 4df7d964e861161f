// Sums of table rows, bag by bag.
#pragma once

#include <tenon/parameter.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::recsys {

/// Rows that are read at once, about, so that they stay in the first cache until they are added.
inline constexpr std::int64_t kRowsAtOnce = 128;

/// Scratch of one thread; grows to the size of the largest bag.
template <class Real>
struct PoolingScratch {
  std::vector<std::int64_t> ids;
  std::vector<Real> rows;
};

/// sums[i] = rows of bag i added in the order of its ids, zero for an empty bag. Bag i holds
/// ids[begin[i]] ... ids[begin[i + 1] - 1], negative ones left out. sums[i] begins at sums + i * stride.
template <class Real>
void pool(const RowTable& table, std::span<const std::int32_t> ids, std::span<const std::int64_t> begin,
          Real* sums, std::int64_t stride, PoolingScratch<Real>& scratch);

}  // namespace tenon::recsys
