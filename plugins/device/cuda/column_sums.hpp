// Host side of sums over rows and over sets: splits them and starts one stage or two. Partial sums are at the
// beginning of the queue's scratch.
#pragma once

#include "queue.hpp"

#include <tenon/kernels/cuda/part_norm.hpp>

namespace tenon::cuda {

/// Upper bound of the scratch of a sum of columns or of sets.
inline constexpr std::size_t kPartialBytes = kernels::cuda::kMostPartialBytes<double, 2>;
static_assert(kPartialBytes <= Queue::kScratchBytes / 2);

template <class A, int K, class Body>
void run_sums(Queue& queue, const char* where, const Grid& grid, const Body& first) {
  queue.launch(where, grid, first);
  if (first.slabs.count == 1) return;
  const std::int64_t columns = first.sums();
  queue.launch(where, grid_for(columns),
               kernels::cuda::ColumnTotals<A, K>{columns, first.slabs.count, first.partial, first.outputs});
}

/// outputs (+)= the sums of terms(row, column) over rows.
template <class A, int K, class Terms>
void sum_columns(Queue& queue, const char* where, std::int64_t rows, std::int64_t columns, const Terms& terms,
                 const kernels::cuda::ColumnOutputs<A, K>& outputs) {
  using Body = kernels::cuda::ColumnSums<A, K, Terms>;
  if (columns == 0) return;
  const Body body{rows,
                  columns,
                  kernels::cuda::slabs_of_rows(rows, columns),
                  terms,
                  queue.scratch<kernels::cuda::Sums<A, K>>(),
                  outputs};
  run_sums<A, K>(queue, where, body.grid(), body);
}

/// outputs (+)= the sums of terms(i, set, j) over the elements of each set.
template <int K, class Terms>
void sum_sets(Queue& queue, const char* where, const kernels::cuda::Sets& of, const Terms& terms,
              const kernels::cuda::ColumnOutputs<double, K>& outputs) {
  using Body = kernels::cuda::SetSums<K, Terms>;
  if (of.sets == 0) return;
  if (of.inner == 1) {
    using Columns = kernels::cuda::SetsAsColumns<K, Terms>;
    return sum_columns<double, K>(queue, where, of.outer, of.sets, Columns{of.sets, terms}, outputs);
  }
  const Body body{of, kernels::cuda::slabs_of_sets(of), terms,
                  queue.scratch<kernels::cuda::Sums<double, K>>(), outputs};
  run_sums<double, K>(queue, where, body.grid(), body);
}

}  // namespace tenon::cuda
