// Normalisation of rows, with a mean (layer norm) or without (RMS norm), on the bodies of
// kernels/cuda/norm.hpp.
#pragma once

#include "arguments.hpp"
#include "column_sums.hpp"
#include "device_common/norms.hpp"

#include <tenon/kernels/cuda/norm.hpp>

namespace tenon::cuda {

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
