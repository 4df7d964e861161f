// Kernel bodies for rows of tables: moves by ids, sums of bags, and row-wise updates. A thread per element,
// or per row where a row becomes one number. Nothing is atomic.
#pragma once

#include <tenon/kernels/cuda/block.hpp>
#include <tenon/kernels/cuda/storage.hpp>
#include <tenon/kernels/table_rows.hpp>

namespace tenon::kernels::cuda {

/// Rows of `width` words between a table and rows in the order of n ids.
template <class Word>
struct MoveRows {
  Word* table;  ///< of row `first` on
  std::int64_t first;
  const std::int64_t* ids;
  Word* rows;
  std::int64_t n, width;
  bool to_table;

  TENON_BOTH void operator()(const Block& block) const {
    const MoveRows& a = *this;
    for_each_element(block, n * width, [&](std::int64_t i) {
      const Divided place = divided(i, a.width);
      Word& in_table = a.table[(a.ids[place.quotient] - a.first) * a.width + place.remainder];
      if (a.to_table) {
        in_table = a.rows[i];
      } else {
        a.rows[i] = in_table;
      }
    });
  }
};

/// Bags `which` of [batch, bags, length] ids.
template <class S>
struct PoolBags {
  const Arith<S>* table;
  const std::int32_t* ids;
  S* out;
  std::int64_t batch, bags, length, width, which;
  bool mean;

  TENON_BOTH void operator()(const Block& block) const {
    const PoolBags& a = *this;
    for_each_element(block, batch * width, [&](std::int64_t i) {
      const Divided place = divided(i, a.width);
      const std::int64_t bag = place.quotient * a.bags + a.which;
      a.out[bag * a.width + place.remainder] =
          put<S>(pooled_column(a.table, a.width, place.remainder, a.ids + bag * a.length, a.length, a.mean));
    });
  }
};

template <class T>
struct MeanSquares {
  const T* x;
  T scale;
  T* means;
  std::int64_t rows, width;

  TENON_BOTH void operator()(const Block& block) const {
    const MeanSquares& a = *this;
    for_each_element(block, rows, [&](std::int64_t r) {
      a.means[r] = sum_of_squares(a.x + r * a.width, a.scale, a.width) / static_cast<T>(a.width);
    });
  }
};

template <class T>
struct SubtractScaled {
  T* rows;
  const T* x;
  T scale;
  const T* rates;
  std::int64_t n, width;

  TENON_BOTH void operator()(const Block& block) const {
    const SubtractScaled& a = *this;
    for_each_element(block, n, [&](std::int64_t i) {
      a.rows[i] -= a.rates[divided(i, a.width).quotient] * (a.scale * a.x[i]);
    });
  }
};

}  // namespace tenon::kernels::cuda
