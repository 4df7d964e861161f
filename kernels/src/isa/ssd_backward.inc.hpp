// Gradients of the state space model by blocks of positions (contract: ssd.hpp). Of a chunk the state before
// it is kept; states before its blocks, C B^T and all weights are computed again. The gradient of l at k is
// the sum over all pairs of positions before k and from k on; no sum is the difference of longer ones.
#pragma once

#include "isa/ssd.inc.hpp"

namespace tenon::kernels {
namespace {

/// Memory of a backward call, part after part.
template <class S>
struct SsdBackwardSpace {
  SsdBackwardSpace(const SsdShape<S>& shape, float* from) {
    const auto take = [&](std::int64_t rows, std::int64_t columns) {
      float* const part = from + size;
      size += rows * columns;
      return part;
    };
    b = take(kSsdBlock, shape.n), c = take(kSsdBlock, shape.n), turned = take(shape.n, kSsdBlock);
    scores = take(kSsdBlock, kSsdBlock), pairs = take(kSsdBlock, kSsdBlock);
    weights = take(kSsdBlock, kSsdBlock), pair_sum = take(kSsdBlock, kSsdBlock);
    u = take(kSsdBlock, shape.p), v = take(kSsdBlock, shape.p), turned_u = take(shape.p, kSsdBlock);
    dy = take(kSsdBlock, shape.p), grown = take(kSsdBlock, shape.p), du = take(kSsdBlock, shape.p);
    back = take(kSsdBlock, shape.n), db = take(kSsdBlock, shape.n), dc = take(kSsdBlock, shape.n);
    turned_state = take(shape.p, shape.n), r = take(kSsdHeads * shape.n, shape.p);
    const std::int64_t chunk = shape.args.chunk < shape.args.time ? shape.args.chunk : shape.args.time;
    blocks = (chunk + kSsdBlock - 1) / kSsdBlock;
    h = take(kSsdHeads * blocks * shape.n, shape.p);
  }
  float *b, *c, *turned;        ///< B, C, B^T
  float *scores, *pairs;        ///< C B^T and dY U^T, on and below the diagonal
  float *weights, *pair_sum;    ///< exp of segment sums times scores; times pairs, summed over the heads
  float *u, *v, *turned_u;      ///< U, tail U, U^T
  float *dy, *grown, *du;       ///< dY, exp(sum of l) dY, dU
  float *back, *db, *dc;        ///< grown H^T; dB and dC summed over the heads
  float *turned_state, *r, *h;  ///< H^T or R^T; R of every head; H before each block of every head
  std::int64_t blocks, size = 0;
};

template <class S>
std::int64_t ssd_backward_workspace(const SsdArgs<S>& args) {
  return SsdBackwardSpace<S>(SsdShape<S>(args), nullptr).size;
}

TENON_INLINE float dot_of_rows(const float* a, const float* b, std::int64_t padded) {
  F lanes = splat(0.0f);
  for (std::int64_t j = 0; j < padded; j += kLanes) lanes = mul_add(load(a + j), load(b + j), lanes);
  return sum_lanes(lanes);
}

/// Links of the positions from a row's own on.
TENON_INLINE auto upper_links(std::int64_t count, std::int64_t columns) {
  return [=](std::int64_t i, std::int64_t) TENON_BODY { return Reach{i, count, columns}; };
}

/// Sums over the positions of one head for the gradients of its parameters.
struct SsdHeadSums {
  float a_log = 0, dt_bias = 0, d = 0;
};

/// States before the blocks of a chunk, from the one kept before it.
template <class S>
void states_of_chunk(const SsdShape<S>& shape, const SsdBackwardSpace<S>& space, const SsdItem& item,
                     std::int64_t chunk, std::int64_t t0, std::int64_t t1) {
  const SsdArgs<S>& args = shape.args;
  const std::int64_t size = shape.n * shape.p, stride = ssd_row(args);
  for (std::int64_t k = 0; k < item.heads; ++k)
    copy_state(shape, args.states, shape.kept_at(item.sequence, chunk, item.head + k),
               space.h + k * space.blocks * size);
  SsdSteps steps = {};
  for (std::int64_t t = t0, block = 1; t + kSsdBlock < t1; t += kSsdBlock, ++block) {
    const S* values = args.xbc + shape.row(item.sequence, t) * stride;
    copy_rows(values + shape.b_column(item.group), stride, kSsdBlock, shape.N, space.b, shape.n);
    for (std::int64_t k = 0; k < item.heads; ++k) {
      float* h = space.h + (k * space.blocks + block) * size;
      steps_of_block(args, item.sequence, t, kSsdBlock, item.head + k, steps);
      inputs_of_block(shape, values + shape.x_column(item.head + k), kSsdBlock, steps, space.u, space.v);
      __builtin_memcpy(h, h - size, size * sizeof(float));
      advance_state(shape, kSsdBlock, steps, space.b, space.v, h);
    }
  }
}

/// weights = E scores, pair_sum += E pairs, and inner[k] = sum over i >= k, j < k of E scores pairs at (i,
/// j), with E = exp of the segment sums.
template <class S>
void pairs_of_block(const SsdBackwardSpace<S>& space, std::int64_t count, const SsdSteps& steps,
                    float* inner) {
  // From the last row up: `below` holds, for each j, the sum over the rows from the present one on.
  clear_floats(space.weights, (count + 3) / 4 * 4 * kSsdBlock);
  segment_weights(count, steps.log_decay, [&](std::int64_t i, std::int64_t j, F e) TENON_BODY {
    const std::int64_t at = i * kSsdBlock + j;
    const F pair = load(space.pairs + at), weight = e * load(space.scores + at);
    store(space.weights + at, weight);
    store(space.pair_sum + at, mul_add(e, pair, load(space.pair_sum + at)));
    store(space.pairs + at, weight * pair);
  });
  F below[kSsdGroups] = {splat(0.0f), splat(0.0f), splat(0.0f), splat(0.0f)};
  for (std::int64_t i = count; i-- > 0;) {
    F lanes = splat(0.0f);
#pragma GCC unroll 4
    for (std::int64_t g = 0; g < kSsdGroups; ++g) {
      if (g * kLanes > i) break;
      below[g] = below[g] + load(space.pairs + i * kSsdBlock + g * kLanes);
      lanes = lanes + (g == i / kLanes ? select(first_lanes(i % kLanes), below[g], splat(0.0f)) : below[g]);
    }
    inner[i] = sum_lanes(lanes);
  }
}

/// du = tail B R + weights^T dY; through[j] = the part of u_j in it that goes through the state.
template <class S>
void inputs_back(const SsdShape<S>& shape, const SsdBackwardSpace<S>& space, std::int64_t count,
                 const SsdSteps& steps, const float* r, float* through) {
  small_product(count, shape.p, Left{space.b, shape.n, 1}, r, shape.p, space.du, shape.p, kFromZero,
                all_links(shape.N, shape.p));
  for (std::int64_t i = 0; i < count; ++i)
    through[i] = dot_of_rows(space.v + i * shape.p, space.du + i * shape.p, shape.p);
  small_product(count, shape.p, Left{space.weights, 1, kSsdBlock}, space.dy, shape.p, space.du, shape.p,
                Begin{steps.tail, 1}, upper_links(count, shape.p));
}

/// The gradients of C and B through the state, and r before the block. from_state[i]: the part of y_i, times
/// dY_i, that comes from the state.
template <class S>
void states_back(const SsdShape<S>& shape, const SsdBackwardSpace<S>& space, std::int64_t count,
                 const SsdSteps& steps, const float* h, float* r, float* from_state) {
  transpose(h, shape.p, shape.n, shape.p, space.turned_state, shape.n);
  small_product(count, shape.n, Left{space.grown, shape.p, 1}, space.turned_state, shape.n, space.back,
                shape.n, kFromZero, all_links(shape.P, shape.n));
  for (std::int64_t i = 0; i < count; ++i) {
    const float *c = space.c + i * shape.n, *back = space.back + i * shape.n;
    float* dc = space.dc + i * shape.n;
    F lanes = splat(0.0f);
    for (std::int64_t j = 0; j < shape.n; j += kLanes) {
      const F value = load(back + j);
      lanes = mul_add(load(c + j), value, lanes);
      store(dc + j, load(dc + j) + value);
    }
    from_state[i] = sum_lanes(lanes);
  }
  transpose(r, shape.p, shape.n, shape.p, space.turned_state, shape.n);
  small_product(count, shape.n, Left{space.v, shape.p, 1}, space.turned_state, shape.n, space.db, shape.n,
                kOntoResult, all_links(shape.P, shape.n));
  advance_state(shape, count, steps, space.c, space.grown, r);
}

/// Writes dx and the gradients of the steps, and adds to the sums of the head.
template <class S>
void write_head(const SsdShape<S>& shape, const SsdBackwardSpace<S>& space, std::int64_t row,
                std::int64_t count, std::int64_t head, const SsdSteps& steps, const float* dl,
                SsdHeadSums& sums) {
  const SsdArgs<S>& args = shape.args;
  const std::int64_t stride = ssd_row(args);
  const S* x = args.xbc + row * stride + shape.x_column(head);
  S* dx = args.dxbc + row * stride + shape.x_column(head);
  const F d = splat(args.d[head]);
  alignas(64) float ddelta[kSsdBlock] = {};
  F of_d = splat(0.0f);
  for (std::int64_t i = 0; i < count; ++i) {
    const F delta = splat(steps.delta[i]);
    F lanes = splat(0.0f);
    for_lanes(0, shape.P, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      const F g = load(space.dy + i * shape.p + j), du = load(space.du + i * shape.p + j);
      const F value = load_group(x + i * stride + j, n);
      lanes = mul_add(value, du, lanes);
      of_d = mul_add(value, g, of_d);
      store_group(dx + i * stride + j, mul_add(delta, du, d * g), n);
    });
    ddelta[i] = sum_lanes(lanes) + steps.rate * dl[i];
  }
  float of_a = 0.0f, of_bias = 0.0f;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const F one = splat(1.0f), slope = one / (one + exp(splat(0.0f) - load(steps.raw + i)));
    const F step = load(ddelta + i) * slope;
    store(ddelta + i, select(load(steps.delta + i) == load(steps.free + i), step, splat(0.0f)));
  }
  S* column = args.dprojected + row * args.columns + args.steps[head];
  for (std::int64_t i = 0; i < count; ++i) {
    store_one(column + i * args.columns, ddelta[i]);
    of_bias += ddelta[i];
    of_a += steps.delta[i] * dl[i];
  }
  sums.a_log += steps.rate * of_a;
  sums.dt_bias += of_bias;
  sums.d += sum_lanes(of_d);
}

/// One head over one block, from the block's end to its begin: r, and what a block adds to the sums.
template <class S>
void head_back(const SsdShape<S>& shape, const SsdBackwardSpace<S>& space, std::int64_t sequence,
               std::int64_t t0, std::int64_t count, std::int64_t head, const float* h, float* r,
               SsdHeadSums& sums) {
  const SsdArgs<S>& args = shape.args;
  const std::int64_t row = shape.row(sequence, t0), width = args.heads * shape.P;
  SsdSteps steps = {};
  steps_of_block(args, sequence, t0, count, head, steps);
  inputs_of_block(shape, args.xbc + row * ssd_row(args) + shape.x_column(head), count, steps, space.u,
                  space.v);
  copy_rows(args.dy + row * width + head * shape.P, width, count, shape.P, space.dy, shape.p);
  for (std::int64_t i = 0; i < (count + 3) / 4 * 4; ++i)
    for (std::int64_t j = 0; j < shape.p; j += kLanes)
      store(space.grown + i * shape.p + j,
            i < count ? splat(steps.grow[i]) * load(space.dy + i * shape.p + j) : splat(0.0f));
  transpose(space.u, shape.p, (count + 3) / 4 * 4, shape.p, space.turned_u, kSsdBlock);
  for (std::int64_t k = 0; k < shape.P; ++k)
    for (std::int64_t j = (count + 3) / 4 * 4; j % kLanes != 0; ++j) space.turned_u[k * kSsdBlock + j] = 0.0f;
  small_product(count, whole_vectors(count), Left{space.dy, shape.p, 1}, space.turned_u, kSsdBlock,
                space.pairs, kSsdBlock, kFromZero, lower_columns(shape.P));
  alignas(64) float dl[kSsdBlock] = {}, through[kSsdBlock], from_state[kSsdBlock];
  pairs_of_block(space, count, steps, dl);
  inputs_back(shape, space, count, steps, r, through);
  float kept = 0.0f;  // of the whole block's decay
  if (steps.grow[count - 1] != 0.0f) kept = steps.grow[count - 1] * dot_of_rows(h, r, shape.n * shape.p);
  states_back(shape, space, count, steps, h, r, from_state);
  float after = 0.0f, before = kept;
  for (std::int64_t i = count; i-- > 0;) dl[i] += after += from_state[i];
  for (std::int64_t i = 0; i < count; ++i) {
    dl[i] += before;
    before += through[i];
  }
  write_head(shape, space, row, count, head, steps, dl, sums);
}

/// All heads of an item over the block [t0, t0 + count), and its rows of bc_sums.
template <class S>
void block_back(const SsdShape<S>& shape, const SsdBackwardSpace<S>& space, const SsdItem& item,
                std::int64_t block, std::int64_t t0, std::int64_t count, SsdHeadSums* sums) {
  const SsdArgs<S>& args = shape.args;
  const std::int64_t size = shape.n * shape.p, stride = ssd_row(args), row = shape.row(item.sequence, t0);
  const S* b = args.xbc + row * stride + shape.b_column(item.group);
  copy_rows(b, stride, count, shape.N, space.b, shape.n);
  copy_rows(b + shape.N, stride, count, shape.N, space.c, shape.n);
  scores_of_block(count, shape.n, shape.N, space.c, space.b, space.turned, space.scores);
  clear_floats(space.pair_sum, kSsdBlock * kSsdBlock);
  clear_floats(space.db, kSsdBlock * shape.n);
  clear_floats(space.dc, kSsdBlock * shape.n);
  for (std::int64_t k = 0; k < item.heads; ++k)
    head_back(shape, space, item.sequence, t0, count, item.head + k,
              space.h + (k * space.blocks + block) * size, space.r + k * size, sums[k]);
  small_product(count, shape.n, Left{space.pair_sum, kSsdBlock, 1}, space.b, shape.n, space.dc, shape.n,
                kOntoResult, lower_links(count, shape.n));
  small_product(count, shape.n, Left{space.pair_sum, 1, kSsdBlock}, space.c, shape.n, space.db, shape.n,
                kOntoResult, upper_links(count, shape.n));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = (item.block * args.batch * args.time + row + i) * args.groups + item.group;
    copy_back(space.db + i * shape.n, shape.n, 1, shape.N, args.bc_sums + at * 2 * shape.N);
    copy_back(space.dc + i * shape.n, shape.n, 1, shape.N, args.bc_sums + (at * 2 + 1) * shape.N);
  }
}

template <class S>
void ssd_backward(const SsdArgs<S>& args, std::int64_t item_begin, std::int64_t item_end, float* workspace) {
  const SsdShape<S> shape(args);
  const SsdBackwardSpace<S> space(shape, workspace);
  const std::int64_t size = shape.n * shape.p;
  clear_floats(space.scores, kSsdBlock * kSsdBlock);
  clear_floats(space.pairs, kSsdBlock * kSsdBlock);
  for (std::int64_t at = item_begin; at < item_end; ++at) {
    const SsdItem item = ssd_item(args, at);
    SsdHeadSums sums[kSsdHeads] = {};
    for (std::int64_t k = 0; k < item.heads; ++k)
      copy_state(shape, args.dlast, shape.state_at(item.sequence, item.head + k), space.r + k * size);
    for (std::int64_t chunk = ssd_chunks(args); chunk-- > 0;) {
      const std::int64_t t0 = chunk * args.chunk, end = t0 + args.chunk;
      const std::int64_t t1 = end < args.time ? end : args.time;
      states_of_chunk(shape, space, item, chunk, t0, t1);
      for (std::int64_t block = (t1 - t0 + kSsdBlock - 1) / kSsdBlock; block-- > 0;) {
        const std::int64_t t = t0 + block * kSsdBlock;
        block_back(shape, space, item, block, t, t1 - t < kSsdBlock ? t1 - t : kSsdBlock, sums);
      }
    }
    float* head_sums = args.head_sums + item.sequence * 3 * args.heads + item.head;
    for (std::int64_t k = 0; k < item.heads; ++k) {
      head_sums[k] = sums[k].a_log;
      head_sums[args.heads + k] = sums[k].dt_bias;
      head_sums[2 * args.heads + k] = sums[k].d;
      if (args.dinitial != nullptr)
        copy_back(space.r + k * size, shape.p, shape.N, shape.P,
                  args.dinitial + shape.state_at(item.sequence, item.head + k));
    }
  }
}

template <class S>
void ssd_finish(const SsdArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  const SsdShape<S> shape(args);
  const std::int64_t width = 2 * args.state, blocks = ssd_head_blocks(args);
  for (std::int64_t row = row_begin; row < row_end; ++row)
    for (std::int64_t group = 0; group < args.groups; ++group)
      for_lanes(0, width, [&](std::int64_t k, std::int64_t n) TENON_BODY {
        F sum = splat(0.0f);
        for (std::int64_t block = 0; block < blocks; ++block)
          sum = sum +
                load_group(
                    args.bc_sums + ((block * args.batch * args.time + row) * args.groups + group) * width + k,
                    n);
        store_group(args.dxbc + row * ssd_row(args) + shape.b_column(group) + k, sum, n);
      });
}

}  // namespace
}  // namespace tenon::kernels
