// Host side of sums, searches and maps that several families start: over rows, over sets and over channels of
// images. Partial sums are at the beginning of the queue's scratch.
#pragma once

#include "common.hpp"
#include "device_common/norms.hpp"

#include <tenon/kernels/cuda/elementwise.hpp>
#include <tenon/kernels/cuda/norm.hpp>
#include <tenon/kernels/cuda/part_norm.hpp>
#include <tenon/kernels/cuda/reduce.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace tenon::cuda {

// Sums over rows and over sets: split, and started in one stage or two.

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
  run_sums<A, K>(queue, where, body.mesh(), body);
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
  run_sums<double, K>(queue, where, body.mesh(), body);
}

// Searches for the first element with a property. They wait for the device.

/// Reduces value(i), i in [0, n), by join, starting from `none`.
template <class Value, class Join>
std::int64_t join_integers(Queue& queue, const char* where, std::int64_t n, std::int64_t none,
                           const Value& value, Join join) {
  if (n == 0) return none;
  const Grid grid = grid_for(n, kernels::cuda::kThreads * sizeof(std::int64_t));
  auto* const partial = queue.scratch<std::int64_t>();
  queue.launch(where, grid, kernels::cuda::JoinIntegers<Value, Join>{n, none, value, join, partial});
  std::vector<std::int64_t> found(grid.blocks);
  queue.copy(partial, MemorySpace::kCuda, found.data(), MemorySpace::kHost,
             found.size() * sizeof(std::int64_t));
  for (const std::int64_t one : found) none = join(none, one);
  return none;
}

// Host side of maps over sets, shared by batch normalisation and the normalisation of shards.

/// y[i] = map of element i, its set and its place.
template <class S, class Map>
void map_sets(Queue& queue, const char* where, const kernels::cuda::Sets& of, S* y, const Map& map) {
  using Body = kernels::cuda::MapSets<S, Map>;
  if (of.elements() > 0) queue.launch(where, Body::grid(of.elements()), Body{of, y, map});
}

// Channels of images as the sets of part_norm.hpp, with all elements on this rank.

/// x [batch, channels, ...] as sets.
inline kernels::cuda::Sets channels_of(const TensorView& x, const char* where) {
  const auto [outer, sets, inner] = device_arguments::channels_as_sets(x, where);
  return {outer, sets, inner};
}

/// parameters (+)= sums, of `count` sets.
template <class A>
void sums_to_parameters(Queue& queue, const char* where, const double* sums, A* parameters,
                        std::int64_t count, bool accumulate) {
  using Map = kernels::cuda::SumsAsParameters<A>;
  queue.launch(
      where, grid_for(count),
      kernels::cuda::MapElements<A, Map>{parameters, count, Map{sums, accumulate ? parameters : nullptr}});
}

// Normalisation of rows, with a mean (layer norm) or without (RMS norm), on the bodies of
// kernels/cuda/norm.hpp.

template <class S>
void normalise_rows(Queue& queue, const kernels::LayerNormForwardArgs<S>& a, bool centred,
                    const char* where) {
  const kernels::cuda::NormaliseRows<S> body{a.rows, a.cols, centred, a.eps,  a.x,
                                             a.gain, a.bias, a.y,     a.mean, a.rstd};
  if (a.rows > 0) queue.launch(where, kernels::cuda::grid_for_rows(a.rows, a.cols, body.kShared), body);
}

template <class S>
void normalise_rows_backward(Queue& queue, const kernels::LayerNormBackwardArgs<S>& a, const char* where) {
  namespace bodies = kernels::cuda;
  using A = Arith<S>;
  // Parameters first: dx may be dy's own memory.
  if (a.dgain != nullptr || a.dbias != nullptr) {
    sum_columns<A, 2>(queue, where, a.rows, a.cols,
                      bodies::NormParameterTerms<S>{a.cols, a.x, a.dy, a.mean, a.rstd},
                      {{a.dgain, a.dbias}, a.accumulate_params});
  }
  if (a.dx == nullptr || a.rows == 0) return;
  const bodies::NormaliseRowsBackward<S> body{a.rows, a.cols, a.x,  a.dy,           a.gain,
                                              a.mean, a.rstd, a.dx, a.accumulate_dx};
  queue.launch(where, bodies::grid_for_rows(a.rows, a.cols, body.kShared), body);
}

}  // namespace tenon::cuda
