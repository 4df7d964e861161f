// Rows are read in blocks of whole bags; the first row of a bag is copied, the others are added.
#include "pooling.hpp"

#include <algorithm>

namespace tenon::recsys {

template <class Real>
void pool(const RowTable& table, std::span<const std::int32_t> ids, std::span<const std::int64_t> begin,
          Real* sums, std::int64_t stride, PoolingScratch<Real>& scratch) {
  const std::int64_t width = table.width();
  const auto bags = static_cast<std::int64_t>(begin.size()) - 1;
  const auto at = [&](std::int64_t bag) { return begin[static_cast<std::size_t>(bag)]; };
  for (std::int64_t first = 0; first < bags;) {
    std::int64_t last = first + 1;
    while (last < bags && at(last + 1) - at(first) <= kRowsAtOnce) ++last;
    scratch.ids.clear();
    for (std::int64_t i = at(first); i < at(last); ++i) {
      if (ids[static_cast<std::size_t>(i)] >= 0) scratch.ids.push_back(ids[static_cast<std::size_t>(i)]);
    }
    const auto count = static_cast<std::int64_t>(scratch.ids.size());
    scratch.rows.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, count * width)));
    if (count > 0) {
      TensorView rows;
      rows.data = scratch.rows.data();
      rows.dtype = table.dtype();
      rows.shape = Shape{count, width};
      table.read(scratch.ids, rows);
    }
    const Real* row = scratch.rows.data();
    for (std::int64_t bag = first; bag < last; ++bag) {
      Real* sum = sums + bag * stride;
      bool empty = true;
      for (std::int64_t i = at(bag); i < at(bag + 1); ++i) {
        if (ids[static_cast<std::size_t>(i)] < 0) continue;
        if (empty) {
          std::copy(row, row + width, sum);
        } else {
          for (std::int64_t j = 0; j < width; ++j) sum[j] += row[j];
        }
        empty = false;
        row += width;
      }
      if (empty) std::fill(sum, sum + width, Real{0});
    }
    first = last;
  }
}

template void pool(const RowTable&, std::span<const std::int32_t>, std::span<const std::int64_t>, float*,
                   std::int64_t, PoolingScratch<float>&);
template void pool(const RowTable&, std::span<const std::int32_t>, std::span<const std::int64_t>, double*,
                   std::int64_t, PoolingScratch<double>&);

}  // namespace tenon::recsys
