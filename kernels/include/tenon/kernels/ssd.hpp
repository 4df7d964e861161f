// The state space model of Mamba-2 layers with one decay per head (Dao, Gu 2024), over whole sequences, and
// of places that go on with a kept state. For head h of group g at position t, with delta = clamp(softplus(
// step + dt_bias)), l = -delta exp(a_log) and u = delta x:
//   H_t = exp(l_t) H_(t-1) + B_t u_t^T,  y_t = H_t^T C_t + d x_t,   H: [state, head_width]
// The set "reference" computes that token by token. The others, and ssd_chunked on double, compute blocks of
// positions by products: exp of the sum of l over (j, i] weighs what position i reads of position j. These
// sums are added up term by term, never taken as a difference, so they are right where l is large.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// Neighbouring heads of a group that are computed together and share C B^T.
inline constexpr std::int64_t kSsdHeads = 4;

/// xbc: rows of, group after group, x of the group's heads, B and C; projected: rows of `columns` elements
/// whose column steps[h] is head h's step.
template <class S>
struct SsdArgs {
  std::int64_t batch = 0, time = 0, heads = 0, head_width = 0, groups = 1, state = 0;
  std::int64_t chunk = 0;    ///< positions from one kept state to the next
  std::int64_t columns = 0;  ///< of a row of projected
  const std::int64_t* steps = nullptr;
  Arith<S> dt_min = 0, dt_max = 0;  ///< of delta; 0: no bound
  const S* xbc = nullptr;
  const S* projected = nullptr;
  const Arith<S>* a_log = nullptr;
  const Arith<S>* dt_bias = nullptr;
  const Arith<S>* d = nullptr;
  const std::int32_t* documents = nullptr;  ///< [batch, time]; null: a sequence is one document
  const Arith<S>* initial = nullptr;        ///< [batch, heads, state, head_width]; null: zero
  Arith<S>* states = nullptr;               ///< [batch, chunks, heads, state, head_width]; may be null
  // Forward.
  S* y = nullptr;
  Arith<S>* last = nullptr;  ///< as initial; may be null
  // Backward: reads states.
  const S* dy = nullptr;
  const Arith<S>* dlast = nullptr;  ///< null: zero
  S* dxbc = nullptr;
  S* dprojected = nullptr;       ///< the steps' columns are written
  Arith<S>* dinitial = nullptr;  ///< may be null
  /// [blocks of heads of a group, batch, time, groups, 2 state]: gradients of B and C before finish().
  Arith<S>* bc_sums = nullptr;
  /// [batch, 3, heads]: gradients of a_log, dt_bias and d, to be added up over the batch.
  Arith<S>* head_sums = nullptr;
};

template <class S>
constexpr std::int64_t ssd_row(const SsdArgs<S>& args) {
  return args.heads * args.head_width + 2 * args.groups * args.state;
}
template <class S>
constexpr std::int64_t ssd_chunks(const SsdArgs<S>& args) {
  return (args.time + args.chunk - 1) / args.chunk;
}
/// Blocks of at most kSsdHeads heads of one group.
template <class S>
constexpr std::int64_t ssd_head_blocks(const SsdArgs<S>& args) {
  return (args.heads / args.groups + kSsdHeads - 1) / kSsdHeads;
}
/// Units of work: (sequence, group, block of heads). Any split among threads gives the same bits.
template <class S>
constexpr std::int64_t ssd_items(const SsdArgs<S>& args) {
  return args.batch * args.groups * ssd_head_blocks(args);
}

/// One unit of work: heads [head, head + heads) of a group of a sequence.
struct SsdItem {
  std::int64_t sequence, group, block, head, heads;
};
template <class S>
constexpr SsdItem ssd_item(const SsdArgs<S>& args, std::int64_t item) {
  const std::int64_t blocks = ssd_head_blocks(args), per_group = args.heads / args.groups;
  const std::int64_t block = item % blocks, group = item / blocks % args.groups, first = block * kSsdHeads;
  const std::int64_t left = per_group - first;
  return {item / blocks / args.groups, group, block, group * per_group + first,
          left < kSsdHeads ? left : kSsdHeads};
}

/// Places of one sequence that go on with its state: rows [row, row + count) of xbc, projected and y.
template <class S>
struct SsdPlaces {
  std::int64_t row = 0, count = 0;
  Arith<S>* state = nullptr;  ///< [heads, state, head_width]
  /// Whether the first place begins a document; later ones do where args.documents changes.
  bool begins = false;
};

template <class S>
struct SsdOps {
  /// Arith<S> elements of workspace that each concurrent caller provides.
  std::int64_t (*forward_workspace)(const SsdArgs<S>& args);
  std::int64_t (*backward_workspace)(const SsdArgs<S>& args);
  void (*forward)(const SsdArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                  Arith<S>* workspace);
  void (*backward)(const SsdArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                   Arith<S>* workspace);
  /// After backward(): dxbc of B and C of rows [row_begin, row_end) of batch x time.
  void (*finish)(const SsdArgs<S>& args, std::int64_t row_begin, std::int64_t row_end);
  /// The recurrence, in every set.
  void (*step)(const SsdArgs<S>& args, const SsdPlaces<S>& places, std::int64_t head_begin,
               std::int64_t head_end);
};

}  // namespace tenon::kernels
