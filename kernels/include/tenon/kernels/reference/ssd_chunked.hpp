// The chunked form of the state space model of ssd.hpp in plain loops, for double: weights are exp of sums of
// l over (j, i], added up one after another. A chunk is one block; its backward needs no state but the kept
// one.
#pragma once

#include <tenon/kernels/reference/ssd.hpp>

namespace tenon::kernels::reference {

/// One head over one chunk [t0, t0 + count): its places, l (minus infinity where a document begins), and
/// exp of the sums of l up to a position and after it.
template <class S>
struct SsdChunk {
  using A = Arith<S>;

  SsdChunk(const SsdArgs<S>& a, std::int64_t sequence, std::int64_t chunk, std::int64_t of_head, A* memory)
      : args(a), t0(chunk * a.chunk), head(of_head), row(sequence * a.time + t0) {
    count = a.time - t0 < a.chunk ? a.time - t0 : a.chunk;
    l = memory, grow = l + a.chunk, tail = grow + a.chunk, delta = tail + a.chunk;
    const A rate = -std::exp(a.a_log[head]);
    for (std::int64_t i = 0; i < count; ++i) {
      delta[i] = place(i).delta;
      l[i] = ssd_begins(a, sequence, t0 + i) ? -static_cast<A>(INFINITY) : delta[i] * rate;
    }
    A sum = 0;
    for (std::int64_t i = 0; i < count; ++i) grow[i] = std::exp(sum += l[i]);
    sum = 0;
    for (std::int64_t i = count; i-- > 0; sum += l[i]) tail[i] = std::exp(sum);
  }

  SsdPlace<S> place(std::int64_t i) const { return ssd_place(args, row + i, head); }

  const SsdArgs<S>& args;
  std::int64_t t0, head, row, count = 0;
  A *l, *grow, *tail, *delta;
};

/// Calls use(i, j, exp of the sum of l over (j, i]) for j <= i.
template <class S, class Use>
void for_segments(const SsdChunk<S>& chunk, Use use) {
  for (std::int64_t j = 0; j < chunk.count; ++j) {
    Arith<S> sum = 0;
    for (std::int64_t i = j; i < chunk.count; ++i) {
      if (i > j) sum += chunk.l[i];
      use(i, j, std::exp(sum));
    }
  }
}

template <class S>
std::int64_t ssd_chunked_forward_workspace(const SsdArgs<S>& args) {
  return args.state * args.head_width + args.chunk * (args.head_width + 4);
}

/// y of the chunk, and h after it.
template <class S>
void ssd_chunk_forward(const SsdChunk<S>& chunk, Arith<S>* h, Arith<S>* y) {
  using A = Arith<S>;
  const SsdArgs<S>& args = chunk.args;
  const std::int64_t N = args.state, P = args.head_width;
  for (std::int64_t i = 0; i < chunk.count; ++i) {
    const SsdPlace<S> at = chunk.place(i);
    for (std::int64_t p = 0; p < P; ++p) {
      A sum = 0;
      for (std::int64_t n = 0; n < N; ++n) sum += h[n * P + p] * get(at.c[n]);
      y[i * P + p] = args.d[chunk.head] * get(at.x[p]) + (chunk.grow[i] == 0 ? A{0} : chunk.grow[i] * sum);
    }
  }
  for_segments(chunk, [&](std::int64_t i, std::int64_t j, A weight) {
    const SsdPlace<S> to = chunk.place(i), from = chunk.place(j);
    A score = 0;
    for (std::int64_t n = 0; n < N; ++n) score += get(to.c[n]) * get(from.b[n]);
    for (std::int64_t p = 0; p < P; ++p) y[i * P + p] += weight * score * (from.delta * get(from.x[p]));
  });
  const A whole = chunk.grow[chunk.count - 1];
  for (std::int64_t k = 0; k < N * P; ++k) h[k] = whole == 0 ? A{0} : whole * h[k];
  for (std::int64_t j = 0; j < chunk.count; ++j) {
    const SsdPlace<S> from = chunk.place(j);
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t p = 0; p < P; ++p)
        h[n * P + p] += chunk.tail[j] * get(from.b[n]) * (from.delta * get(from.x[p]));
  }
}

template <class S>
void ssd_chunked_forward(const SsdArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                         Arith<S>* workspace) {
  using A = Arith<S>;
  const std::int64_t P = args.head_width, size = args.state * P;
  A *h = workspace, *y = h + size, *memory = y + args.chunk * P;
  for (std::int64_t at = item_begin; at < item_end; ++at) {
    const SsdItem item = ssd_item(args, at);
    for (std::int64_t head = item.head; head < item.head + item.heads; ++head) {
      const std::int64_t of_head = (item.sequence * args.heads + head) * size;
      for (std::int64_t k = 0; k < size; ++k)
        h[k] = args.initial == nullptr ? A{0} : args.initial[of_head + k];
      for (std::int64_t c = 0; c < ssd_chunks(args); ++c) {
        const std::int64_t kept = ((item.sequence * ssd_chunks(args) + c) * args.heads + head) * size;
        for (std::int64_t k = 0; args.states != nullptr && k < size; ++k) args.states[kept + k] = h[k];
        const SsdChunk<S> chunk(args, item.sequence, c, head, memory);
        ssd_chunk_forward(chunk, h, y);
        for (std::int64_t i = 0; i < chunk.count; ++i)
          for (std::int64_t p = 0; p < P; ++p)
            args.y[((chunk.row + i) * args.heads + head) * P + p] = put<S>(y[i * P + p]);
      }
      for (std::int64_t k = 0; args.last != nullptr && k < size; ++k) args.last[of_head + k] = h[k];
    }
  }
}

template <class S>
std::int64_t ssd_chunked_backward_workspace(const SsdArgs<S>& args) {
  return args.state * args.head_width + args.chunk * (args.head_width + 5) + args.chunk * args.chunk;
}

/// Memory of the gradients of one chunk.
template <class S>
struct SsdChunkGradients {
  SsdChunkGradients(const SsdArgs<S>& args, Arith<S>* memory) {
    r = memory, du = r + args.state * args.head_width, dl = du + args.chunk * args.head_width;
    steps = dl + args.chunk, pairs = steps + 4 * args.chunk;
  }
  Arith<S>*r, *du, *dl, *steps;  ///< of the state, delta x, l; memory of SsdChunk
  Arith<S>* pairs;               ///< [chunk, chunk]: weights times both products of a pair
};

/// Within the chunk: du, the gradients of B and C, and the pairs that depend on l.
template <class S>
void ssd_pairs_backward(const SsdChunk<S>& chunk, const SsdChunkGradients<S>& out, Arith<S>* dbc,
                        std::int64_t stride) {
  using A = Arith<S>;
  const SsdArgs<S>& args = chunk.args;
  const std::int64_t N = args.state, P = args.head_width;
  for_segments(chunk, [&](std::int64_t i, std::int64_t j, A weight) {
    const SsdPlace<S> to = chunk.place(i), from = chunk.place(j);
    const S* dy = args.dy + ((chunk.row + i) * args.heads + chunk.head) * P;
    A score = 0, pair = 0;
    for (std::int64_t n = 0; n < N; ++n) score += get(to.c[n]) * get(from.b[n]);
    for (std::int64_t p = 0; p < P; ++p) {
      pair += get(dy[p]) * (from.delta * get(from.x[p]));
      out.du[j * P + p] += weight * score * get(dy[p]);
    }
    for (std::int64_t n = 0; n < N; ++n) {
      dbc[j * stride + n] += weight * pair * get(to.c[n]);
      dbc[i * stride + N + n] += weight * pair * get(from.b[n]);
    }
    out.pairs[i * args.chunk + j] = weight * score * pair;
  });
  for (std::int64_t k = 0; k < chunk.count; ++k) {
    A sum = 0;
    for (std::int64_t i = k; i < chunk.count; ++i)
      for (std::int64_t j = 0; j < k; ++j) sum += out.pairs[i * args.chunk + j];
    out.dl[k] = sum;
  }
}

/// Through the state before the chunk, h, and the one after it; r becomes the gradient of h.
template <class S>
void ssd_states_backward(const SsdChunk<S>& chunk, const SsdChunkGradients<S>& out, const Arith<S>* h,
                         Arith<S>* dbc, std::int64_t stride) {
  using A = Arith<S>;
  const SsdArgs<S>& args = chunk.args;
  const std::int64_t N = args.state, P = args.head_width;
  const A whole = chunk.grow[chunk.count - 1];
  A before = 0, after = 0;
  for (std::int64_t k = 0; whole != 0 && k < N * P; ++k) before += whole * h[k] * out.r[k];
  for (std::int64_t j = 0; j < chunk.count; ++j) {
    const SsdPlace<S> at = chunk.place(j);
    out.dl[j] += before;
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t p = 0; p < P; ++p) {
        const A back = chunk.tail[j] * out.r[n * P + p], u = at.delta * get(at.x[p]);
        out.du[j * P + p] += back * get(at.b[n]);
        dbc[j * stride + n] += back * u;
        before += back * get(at.b[n]) * u;
      }
  }
  for (std::int64_t k = 0; k < N * P; ++k) out.r[k] = whole == 0 ? A{0} : whole * out.r[k];
  for (std::int64_t i = chunk.count; i-- > 0;) {
    const SsdPlace<S> at = chunk.place(i);
    const S* dy = args.dy + ((chunk.row + i) * args.heads + chunk.head) * P;
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t p = 0; p < P; ++p) {
        const A grown = chunk.grow[i] * get(dy[p]);
        if (chunk.grow[i] != 0) {
          dbc[i * stride + N + n] += grown * h[n * P + p];
          after += get(at.c[n]) * grown * h[n * P + p];
        }
        out.r[n * P + p] += get(at.c[n]) * grown;
      }
    out.dl[i] += after;
  }
}

/// dx, the steps' gradients and the sums of the head.
template <class S>
void ssd_chunk_write(const SsdChunk<S>& chunk, const SsdChunkGradients<S>& out, Arith<S>* head_sums) {
  using A = Arith<S>;
  const SsdArgs<S>& args = chunk.args;
  const std::int64_t P = args.head_width, head = chunk.head;
  const A rate = -std::exp(args.a_log[head]);
  for (std::int64_t i = 0; i < chunk.count; ++i) {
    const SsdPlace<S> at = chunk.place(i);
    const S* dy = args.dy + ((chunk.row + i) * args.heads + head) * P;
    S* dx = args.dxbc + (at.x - args.xbc);
    A ddelta = rate * out.dl[i];
    for (std::int64_t p = 0; p < P; ++p) {
      ddelta += get(at.x[p]) * out.du[i * P + p];
      head_sums[2 * args.heads + head] += get(dy[p]) * get(at.x[p]);
      dx[p] = put<S>(at.delta * out.du[i * P + p] + args.d[head] * get(dy[p]));
    }
    const A dstep = at.clamped ? A{0} : ddelta / (1 + std::exp(-at.raw));
    args.dprojected[(chunk.row + i) * args.columns + args.steps[head]] = put<S>(dstep);
    head_sums[head] += rate * at.delta * out.dl[i];
    head_sums[args.heads + head] += dstep;
  }
}

template <class S>
void ssd_chunked_backward(const SsdArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                          Arith<S>* workspace) {
  using A = Arith<S>;
  const std::int64_t P = args.head_width, size = args.state * P, stride = args.groups * 2 * args.state;
  const SsdChunkGradients<S> out(args, workspace);
  for (std::int64_t at = item_begin; at < item_end; ++at) {
    const SsdItem item = ssd_item(args, at);
    const std::int64_t first = (item.block * args.batch + item.sequence) * args.time;
    A* sums = args.bc_sums + (first * args.groups + item.group) * 2 * args.state;
    for (std::int64_t t = 0; t < args.time; ++t)
      for (std::int64_t k = 0; k < 2 * args.state; ++k) sums[t * stride + k] = 0;
    A* head_sums = args.head_sums + item.sequence * 3 * args.heads;
    for (std::int64_t head = item.head; head < item.head + item.heads; ++head) {
      for (std::int64_t k = 0; k < 3; ++k) head_sums[k * args.heads + head] = 0;
      const std::int64_t of_head = (item.sequence * args.heads + head) * size;
      for (std::int64_t k = 0; k < size; ++k)
        out.r[k] = args.dlast == nullptr ? A{0} : args.dlast[of_head + k];
      for (std::int64_t c = ssd_chunks(args); c-- > 0;) {
        const SsdChunk<S> chunk(args, item.sequence, c, head, out.steps);
        for (std::int64_t k = 0; k < chunk.count * P; ++k) out.du[k] = 0;
        A* dbc = sums + chunk.t0 * stride;
        ssd_pairs_backward(chunk, out, dbc, stride);
        ssd_states_backward(chunk, out,
                            args.states + ((item.sequence * ssd_chunks(args) + c) * args.heads + head) * size,
                            dbc, stride);
        ssd_chunk_write(chunk, out, head_sums);
      }
      for (std::int64_t k = 0; args.dinitial != nullptr && k < size; ++k)
        args.dinitial[of_head + k] = out.r[k];
    }
  }
}

}  // namespace tenon::kernels::reference
