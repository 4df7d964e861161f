// The state space model by blocks of positions (contract: ssd.hpp): forward, and the recurrence for steps.
// A chunk is computed in blocks of at most 64 positions, whose operands are copied as floats into rows of
// whole vectors, so that all products of a block stay in the second cache.
#pragma once

#include <tenon/kernels/ssd.hpp>

#include "isa/math.inc.hpp"
#include "isa/small_product.inc.hpp"
#include "isa/softmax.inc.hpp"
#include "isa/transpose.inc.hpp"

namespace tenon::kernels {
namespace {

/// Positions of a block, and vectors of them.
constexpr std::int64_t kSsdBlock = 64, kSsdGroups = kSsdBlock / kLanes;

constexpr std::int64_t whole_vectors(std::int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

/// log(1 + exp(x)), relatively right for small exp(x), too.
TENON_INLINE F softplus(F x) {
  const F one = splat(1.0f), u = exp(min(splat(20.0f), x)), w = one + u;
  const F small = log(w) * (u / select(w == one, one, w - one));
  return select(splat(20.0f) < x, x, select(w == one, u, small));
}

/// Sizes of a problem, and where the operands of its heads are.
template <class S>
struct SsdShape {
  explicit SsdShape(const SsdArgs<S>& a)
      : args(a), P(a.head_width), N(a.state), p(whole_vectors(P)), n(whole_vectors(N)) {}

  std::int64_t row(std::int64_t sequence, std::int64_t t) const { return sequence * args.time + t; }
  /// Columns of xbc.
  std::int64_t x_column(std::int64_t head) const {
    const std::int64_t per_group = args.heads / args.groups;
    return head / per_group * (per_group * P + 2 * N) + head % per_group * P;
  }
  std::int64_t b_column(std::int64_t group) const {
    const std::int64_t heads = args.heads / args.groups * P;
    return group * (heads + 2 * N) + heads;
  }
  std::int64_t state_at(std::int64_t sequence, std::int64_t head) const {
    return (sequence * args.heads + head) * N * P;
  }
  std::int64_t kept_at(std::int64_t sequence, std::int64_t chunk, std::int64_t head) const {
    return ((sequence * ssd_chunks(args) + chunk) * args.heads + head) * N * P;
  }

  const SsdArgs<S>& args;
  std::int64_t P, N;  ///< of a state
  std::int64_t p, n;  ///< of its copy, in whole vectors
};

/// to[count, padded] = from[count, width], zeros beside it and below it up to a multiple of 4 rows.
template <class T>
TENON_INLINE void copy_rows(const T* from, std::int64_t stride, std::int64_t count, std::int64_t width,
                            float* to, std::int64_t padded) {
  for (std::int64_t i = 0; i < count; ++i)
    for_lanes(0, width, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      store(to + i * padded + j, load_group(from + i * stride + j, n));
    });
  for (std::int64_t i = count; i % 4 != 0; ++i)
    for (std::int64_t j = 0; j < padded; j += kLanes) store(to + i * padded + j, splat(0.0f));
}

/// to[count, width] = from[count, padded].
TENON_INLINE void copy_back(const float* from, std::int64_t padded, std::int64_t count, std::int64_t width,
                            float* to) {
  for (std::int64_t i = 0; i < count; ++i)
    for_lanes(0, width, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      store_group(to + i * width + j, load(from + i * padded + j), n);
    });
}

TENON_INLINE void clear_floats(float* to, std::int64_t n) {
  __builtin_memset(to, 0, n * sizeof(float));
}

/// to = states[at ...], zero where there are none.
template <class S>
TENON_INLINE void copy_state(const SsdShape<S>& shape, const float* states, std::int64_t at, float* to) {
  clear_floats(to, shape.n * shape.p);
  if (states != nullptr) copy_rows(states + at, shape.P, shape.N, shape.P, to, shape.p);
}

/// Steps of one head over a block. Only the first `count` of each hold.
struct SsdSteps {
  alignas(64) float raw[kSsdBlock];        ///< before softplus
  alignas(64) float free[kSsdBlock];       ///< softplus, before the bounds
  alignas(64) float delta[kSsdBlock];      ///< the step
  alignas(64) float log_decay[kSsdBlock];  ///< l; -infinity where a document begins
  alignas(64) float grow[kSsdBlock];       ///< exp of the sum of l up to here: of the state before the block
  alignas(64) float tail[kSsdBlock];       ///< exp of the sum of l after here: to the state after the block
  float rate;                              ///< -exp(a_log)
};

/// exp of the sums of l from the block's begin, and to its end.
TENON_INLINE void decays_of_block(std::int64_t count, SsdSteps& steps) {
  float sum = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) steps.grow[i] = sum += steps.log_decay[i];
  sum = 0.0f;
  for (std::int64_t i = count; i-- > 0;) {
    steps.tail[i] = sum;
    sum += steps.log_decay[i];
  }
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store(steps.grow + i, weight_exp(load(steps.grow + i)));
    store(steps.tail + i, weight_exp(load(steps.tail + i)));
  }
}

template <class S>
void steps_of_block(const SsdArgs<S>& args, std::int64_t sequence, std::int64_t t0, std::int64_t count,
                    std::int64_t head, SsdSteps& steps) {
  const std::int64_t row = sequence * args.time + t0;
  const S* column = args.projected + row * args.columns + args.steps[head];
  const float bias = args.dt_bias[head];
  for (std::int64_t i = 0; i < count; ++i) steps.raw[i] = load_one(column + i * args.columns) + bias;
  for (std::int64_t i = count; i % kLanes != 0; ++i) steps.raw[i] = 0.0f;
  steps.rate = -exp_one(args.a_log[head]);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const F free = softplus(load(steps.raw + i));
    F delta = free;
    if (args.dt_min > 0) delta = max(splat(args.dt_min), delta);
    if (args.dt_max > 0) delta = min(splat(args.dt_max), delta);
    store(steps.free + i, free);
    store(steps.delta + i, delta);
    store(steps.log_decay + i, delta * splat(steps.rate));
  }
  if (args.documents != nullptr)
    for (std::int64_t i = 0; i < count; ++i)
      if (t0 + i > 0 && args.documents[row + i] != args.documents[row + i - 1])
        steps.log_decay[i] = kMinusInfinity;
  decays_of_block(count, steps);
}

/// Calls put(i, j, weights) with exp of the sums of l over (j, i] for 16 positions j, zero where j > i, for
/// every group of 16 that position i sees.
template <class Put>
TENON_INLINE void segment_weights(std::int64_t count, const float* log_decay, Put put) {
  F sums[kSsdGroups];
#pragma GCC unroll 4
  for (std::int64_t g = 0; g < kSsdGroups; ++g) sums[g] = splat(kMinusInfinity);
  for (std::int64_t i = 0; i < count; ++i) {
    const F l = splat(log_decay[i]);
#pragma GCC unroll 4
    for (std::int64_t g = 0; g < kSsdGroups; ++g) {
      if (g * kLanes > i) break;
      sums[g] =
          select(lanes_from(g * kLanes) == splat_int(static_cast<std::int32_t>(i)), splat(0.0f), sums[g] + l);
      put(i, g * kLanes, weight_exp(sums[g]));
    }
  }
}

/// Rows that see no later position: links [0, last row], columns as many.
TENON_INLINE auto lower_links(std::int64_t count, std::int64_t columns) {
  return [=](std::int64_t i, std::int64_t rows) TENON_BODY {
    const std::int64_t end = i + rows;
    return Reach{0, end < count ? end : count, columns};
  };
}
/// All links of the columns that rows up to the last see.
TENON_INLINE auto lower_columns(std::int64_t links) {
  return [=](std::int64_t i, std::int64_t rows) TENON_BODY { return Reach{0, links, i + rows}; };
}
TENON_INLINE auto all_links(std::int64_t links, std::int64_t columns) {
  return [=](std::int64_t, std::int64_t) TENON_BODY { return Reach{0, links, columns}; };
}

/// c[i, j] = (C B^T)[i, j] for j <= i, and turned = B^T.
TENON_INLINE void scores_of_block(std::int64_t count, std::int64_t n, std::int64_t N, const float* c,
                                  const float* b, float* turned, float* scores) {
  transpose(b, n, (count + 3) / 4 * 4, n, turned, kSsdBlock);
  for (std::int64_t k = 0; k < N; ++k)
    for (std::int64_t j = (count + 3) / 4 * 4; j % kLanes != 0; ++j) turned[k * kSsdBlock + j] = 0.0f;
  small_product(count, whole_vectors(count), Left{c, n, 1}, turned, kSsdBlock, scores, kSsdBlock, kFromZero,
                lower_columns(N));
}

/// weights[i, j] = exp(sum of l over (j, i]) scores[i, j], zero in the columns after i.
TENON_INLINE void weighted_scores(std::int64_t count, const SsdSteps& steps, const float* scores,
                                  float* weights) {
  clear_floats(weights, (count + 3) / 4 * 4 * kSsdBlock);
  segment_weights(count, steps.log_decay, [&](std::int64_t i, std::int64_t j, F e) TENON_BODY {
    store(weights + i * kSsdBlock + j, e * load(scores + i * kSsdBlock + j));
  });
}

/// u = delta x and v = tail u.
template <class S>
void inputs_of_block(const SsdShape<S>& shape, const S* x, std::int64_t count, const SsdSteps& steps,
                     float* u, float* v) {
  const std::int64_t stride = ssd_row(shape.args);
  for (std::int64_t i = 0; i < count; ++i)
    for_lanes(0, shape.P, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      const F value = splat(steps.delta[i]) * load_group(x + i * stride + j, n);
      store(u + i * shape.p + j, value);
      store(v + i * shape.p + j, splat(steps.tail[i]) * value);
    });
  for (std::int64_t i = count; i % 4 != 0; ++i) {
    clear_floats(u + i * shape.p, shape.p);
    clear_floats(v + i * shape.p, shape.p);
  }
}

/// h = decay of the block h + B^T v.
template <class S>
void advance_state(const SsdShape<S>& shape, std::int64_t count, const SsdSteps& steps, const float* b,
                   const float* v, float* h) {
  // A state before a document that begins here may be infinite: it is cleared, not multiplied by zero.
  const float* decay = steps.grow + count - 1;
  small_product(shape.N, shape.p, Left{b, 1, shape.n}, v, shape.p, h, shape.p,
                *decay == 0.0f ? kFromZero : Begin{decay, 0}, all_links(count, shape.p));
}

/// Memory of a forward call, part after part.
template <class S>
struct SsdForwardSpace {
  SsdForwardSpace(const SsdShape<S>& shape, float* from) {
    const auto take = [&](std::int64_t rows, std::int64_t columns) {
      float* const part = from + size;
      size += rows * columns;
      return part;
    };
    b = take(kSsdBlock, shape.n), c = take(kSsdBlock, shape.n), turned = take(shape.n, kSsdBlock);
    scores = take(kSsdBlock, kSsdBlock), weights = take(kSsdBlock, kSsdBlock);
    u = take(kSsdBlock, shape.p), v = take(kSsdBlock, shape.p), y = take(kSsdBlock, shape.p);
    h = take(kSsdHeads * shape.n, shape.p);
  }
  float *b, *c, *turned, *scores, *weights, *u, *v, *y, *h;
  std::int64_t size = 0;
};

template <class S>
std::int64_t ssd_forward_workspace(const SsdArgs<S>& args) {
  return SsdForwardSpace<S>(SsdShape<S>(args), nullptr).size;
}

/// y = D x + exp(sum of l) C H + weights U, for one head over a block.
template <class S>
void outputs_of_block(const SsdShape<S>& shape, const SsdForwardSpace<S>& space, const float* h,
                      const SsdSteps& steps, std::int64_t count, const S* x, float d, S* y) {
  small_product(count, shape.p, Left{space.c, shape.n, 1}, h, shape.p, space.y, shape.p, kFromZero,
                all_links(shape.N, shape.p));
  small_product(count, shape.p, Left{space.weights, kSsdBlock, 1}, space.u, shape.p, space.y, shape.p,
                Begin{steps.grow, 1}, lower_links(count, shape.p));
  const std::int64_t stride = ssd_row(shape.args), width = shape.args.heads * shape.P;
  for (std::int64_t i = 0; i < count; ++i)
    for_lanes(0, shape.P, [&](std::int64_t j, std::int64_t n) TENON_BODY {
      const F value = mul_add(splat(d), load_group(x + i * stride + j, n), load(space.y + i * shape.p + j));
      store_group(y + i * width + j, value, n);
    });
}

template <class S>
void ssd_forward(const SsdArgs<S>& args, std::int64_t item_begin, std::int64_t item_end, float* workspace) {
  const SsdShape<S> shape(args);
  const SsdForwardSpace<S> space(shape, workspace);
  const std::int64_t size = shape.n * shape.p, stride = ssd_row(args);
  clear_floats(space.scores, kSsdBlock * kSsdBlock);
  SsdSteps steps = {};
  for (std::int64_t at = item_begin; at < item_end; ++at) {
    const SsdItem item = ssd_item(args, at);
    for (std::int64_t k = 0; k < item.heads; ++k)
      copy_state(shape, args.initial, shape.state_at(item.sequence, item.head + k), space.h + k * size);
    for (std::int64_t t0 = 0, count; t0 < args.time; t0 += count) {
      const std::int64_t chunk = t0 / args.chunk, end = (chunk + 1) * args.chunk;
      const std::int64_t left = (end < args.time ? end : args.time) - t0;
      count = left < kSsdBlock ? left : kSsdBlock;
      const S* values = args.xbc + shape.row(item.sequence, t0) * stride;
      copy_rows(values + shape.b_column(item.group), stride, count, shape.N, space.b, shape.n);
      copy_rows(values + shape.b_column(item.group) + shape.N, stride, count, shape.N, space.c, shape.n);
      scores_of_block(count, shape.n, shape.N, space.c, space.b, space.turned, space.scores);
      for (std::int64_t k = 0; k < item.heads; ++k) {
        const std::int64_t head = item.head + k;
        float* h = space.h + k * size;
        const S* x = values + shape.x_column(head);
        if (args.states != nullptr && t0 == chunk * args.chunk)
          copy_back(h, shape.p, shape.N, shape.P, args.states + shape.kept_at(item.sequence, chunk, head));
        steps_of_block(args, item.sequence, t0, count, head, steps);
        inputs_of_block(shape, x, count, steps, space.u, space.v);
        weighted_scores(count, steps, space.scores, space.weights);
        outputs_of_block(shape, space, h, steps, count, x, args.d[head],
                         args.y + (shape.row(item.sequence, t0) * args.heads + head) * shape.P);
        advance_state(shape, count, steps, space.b, space.v, h);
      }
    }
    for (std::int64_t k = 0; args.last != nullptr && k < item.heads; ++k)
      copy_back(space.h + k * size, shape.p, shape.N, shape.P,
                args.last + shape.state_at(item.sequence, item.head + k));
  }
}

/// h = decay h + B u^T and y = H^T C + d x, for 16 elements of a head.
template <class S>
TENON_INLINE F step_lanes(const SsdShape<S>& shape, const S* b, const S* c, F u, float decay, bool begins,
                          float* h, std::int64_t count) {
  F sum = splat(0.0f);
  for (std::int64_t k = 0; k < shape.N; ++k) {
    const F before = begins ? splat(0.0f) : load_group(h + k * shape.P, count);
    const F now = mul_add(splat(load_one(b + k)), u, splat(decay) * before);
    store_group(h + k * shape.P, now, count);
    sum = mul_add(now, splat(load_one(c + k)), sum);
  }
  return sum;
}

template <class S>
void ssd_step(const SsdArgs<S>& args, const SsdPlaces<S>& places, std::int64_t head_begin,
              std::int64_t head_end) {
  const SsdShape<S> shape(args);
  const std::int64_t per_group = args.heads / args.groups;
  for (std::int64_t head = head_begin; head < head_end; ++head) {
    float* h = places.state + head * shape.N * shape.P;
    const float rate = -exp_one(args.a_log[head]);
    for (std::int64_t t = 0; t < places.count; ++t) {
      const std::int64_t row = places.row + t;
      const bool begins = t == 0
                              ? places.begins
                              : args.documents != nullptr && args.documents[row] != args.documents[row - 1];
      const S* values = args.xbc + row * ssd_row(args);
      const S *x = values + shape.x_column(head), *b = values + shape.b_column(head / per_group);
      F raw = splat(load_one(args.projected + row * args.columns + args.steps[head]) + args.dt_bias[head]);
      F delta = softplus(raw);
      if (args.dt_min > 0) delta = max(splat(args.dt_min), delta);
      if (args.dt_max > 0) delta = min(splat(args.dt_max), delta);
      const float decay = weight_exp(delta * splat(rate)).v[0][0];
      for_lanes(0, shape.P, [&](std::int64_t j, std::int64_t n) TENON_BODY {
        const F values_x = load_group(x + j, n);
        const F sum = step_lanes(shape, b, b + shape.N, delta * values_x, decay, begins, h + j, n);
        store_group(args.y + (row * args.heads + head) * shape.P + j,
                    mul_add(splat(args.d[head]), values_x, sum), n);
      });
    }
  }
}

}  // namespace
}  // namespace tenon::kernels
