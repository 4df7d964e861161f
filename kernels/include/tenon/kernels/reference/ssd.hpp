// Reference state space model: the recurrence of ssd.hpp token by token, so that a sequence has the same bits
// however it is split. Backward computes the states of a chunk again from the kept one.
#pragma once

#include <cmath>
#include <tenon/kernels/reference/scalar.hpp>
#include <tenon/kernels/ssd.hpp>

namespace tenon::kernels::reference {

/// Step, decay and rows of one head at one position.
template <class S>
struct SsdPlace {
  const S *x, *b, *c;
  Arith<S> raw, delta, decay;
  bool clamped;
};

/// log(1 + exp(x)).
template <class A>
A softplus(A x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

template <class S>
SsdPlace<S> ssd_place(const SsdArgs<S>& args, std::int64_t row, std::int64_t head) {
  using A = Arith<S>;
  const std::int64_t per_group = args.heads / args.groups, group = head / per_group, P = args.head_width;
  SsdPlace<S> at;
  const S* values = args.xbc + row * ssd_row(args) + group * (per_group * P + 2 * args.state);
  at.x = values + head % per_group * P;
  at.b = values + per_group * P;
  at.c = at.b + args.state;
  at.raw = get(args.projected[row * args.columns + args.steps[head]]) + args.dt_bias[head];
  const A free = softplus(at.raw);
  at.delta = free;
  if (args.dt_min > 0 && at.delta < args.dt_min) at.delta = args.dt_min;
  if (args.dt_max > 0 && at.delta > args.dt_max) at.delta = args.dt_max;
  at.clamped = at.delta != free;
  at.decay = std::exp(-at.delta * std::exp(args.a_log[head]));
  return at;
}

/// Whether position t begins a document after the sequence's first.
template <class S>
bool ssd_begins(const SsdArgs<S>& args, std::int64_t sequence, std::int64_t t) {
  if (args.documents == nullptr || t == 0) return false;
  const std::int32_t* numbers = args.documents + sequence * args.time;
  return numbers[t] != numbers[t - 1];
}

/// h becomes the state after the position; y, where not null, its row of the head.
template <class S>
void ssd_advance(const SsdArgs<S>& args, std::int64_t row, std::int64_t head, bool begins, Arith<S>* h,
                 S* y) {
  using A = Arith<S>;
  const std::int64_t N = args.state, P = args.head_width;
  const SsdPlace<S> at = ssd_place(args, row, head);
  for (std::int64_t n = 0; n < N; ++n)
    for (std::int64_t p = 0; p < P; ++p)
      h[n * P + p] = (begins ? A{0} : at.decay * h[n * P + p]) + get(at.b[n]) * (at.delta * get(at.x[p]));
  if (y == nullptr) return;
  for (std::int64_t p = 0; p < P; ++p) {
    A sum = args.d[head] * get(at.x[p]);
    for (std::int64_t n = 0; n < N; ++n) sum += h[n * P + p] * get(at.c[n]);
    y[(row * args.heads + head) * P + p] = put<S>(sum);
  }
}

template <class S>
std::int64_t ssd_forward_workspace(const SsdArgs<S>& args) {
  return args.state * args.head_width;
}

template <class S>
void ssd_forward(const SsdArgs<S>& args, std::int64_t item_begin, std::int64_t item_end, Arith<S>* h) {
  const std::int64_t size = args.state * args.head_width;
  for (std::int64_t i = item_begin; i < item_end; ++i) {
    const SsdItem item = ssd_item(args, i);
    for (std::int64_t head = item.head; head < item.head + item.heads; ++head) {
      const std::int64_t from = (item.sequence * args.heads + head) * size;
      for (std::int64_t k = 0; k < size; ++k)
        h[k] = args.initial == nullptr ? Arith<S>{0} : args.initial[from + k];
      for (std::int64_t t = 0; t < args.time; ++t) {
        if (args.states != nullptr && t % args.chunk == 0) {
          const std::int64_t chunk = item.sequence * ssd_chunks(args) + t / args.chunk;
          for (std::int64_t k = 0; k < size; ++k) args.states[(chunk * args.heads + head) * size + k] = h[k];
        }
        ssd_advance(args, item.sequence * args.time + t, head, ssd_begins(args, item.sequence, t), h, args.y);
      }
      if (args.last == nullptr) continue;
      for (std::int64_t k = 0; k < size; ++k) args.last[from + k] = h[k];
    }
  }
}

/// Gradients of one position, back from the gradient r of its state: those of B, C, x and the step.
template <class S>
void ssd_retreat(const SsdArgs<S>& args, std::int64_t row, std::int64_t head, bool begins,
                 const Arith<S>* before, const Arith<S>* now, Arith<S>* r, Arith<S>* du, Arith<S>* dbc,
                 Arith<S>* head_sums) {
  using A = Arith<S>;
  const std::int64_t N = args.state, P = args.head_width;
  const SsdPlace<S> at = ssd_place(args, row, head);
  const S* dy = args.dy + (row * args.heads + head) * P;
  S* dx = args.dxbc + (at.x - args.xbc);
  A ddelta = 0, dl = 0, dd = 0;
  for (std::int64_t p = 0; p < P; ++p) du[p] = 0;
  for (std::int64_t n = 0; n < N; ++n)
    for (std::int64_t p = 0; p < P; ++p) {
      const A g = get(dy[p]);
      A& back = r[n * P + p];
      dbc[N + n] += now[n * P + p] * g;
      back += get(at.c[n]) * g;
      dbc[n] += back * at.delta * get(at.x[p]);
      du[p] += back * get(at.b[n]);
      if (!begins) dl += back * before[n * P + p];
    }
  dl *= at.decay;
  for (std::int64_t p = 0; p < P; ++p) {
    const A g = get(dy[p]), x = get(at.x[p]);
    ddelta += x * du[p];
    dd += g * x;
    dx[p] = put<S>(at.delta * du[p] + args.d[head] * g);
  }
  const A rate = -std::exp(args.a_log[head]);
  ddelta += rate * dl;
  const A dstep = at.clamped ? A{0} : ddelta / (1 + std::exp(-at.raw));
  head_sums[head] += at.delta * dl * rate;
  head_sums[args.heads + head] += dstep;
  head_sums[2 * args.heads + head] += dd;
  args.dprojected[row * args.columns + args.steps[head]] = put<S>(dstep);
  for (std::int64_t k = 0; k < N * P; ++k) r[k] = begins ? A{0} : r[k] * at.decay;
}

template <class S>
std::int64_t ssd_backward_workspace(const SsdArgs<S>& args) {
  return (args.chunk + 2) * args.state * args.head_width + args.head_width;
}

template <class S>
void ssd_backward(const SsdArgs<S>& args, std::int64_t item_begin, std::int64_t item_end,
                  Arith<S>* workspace) {
  using A = Arith<S>;
  const std::int64_t size = args.state * args.head_width, Q = args.chunk;
  A *h = workspace, *r = h + (Q + 1) * size, *du = r + size;
  for (std::int64_t i = item_begin; i < item_end; ++i) {
    const SsdItem item = ssd_item(args, i);
    const auto sums = [&](std::int64_t t) {
      const std::int64_t row = (item.block * args.batch + item.sequence) * args.time + t;
      return args.bc_sums + (row * args.groups + item.group) * 2 * args.state;
    };
    for (std::int64_t t = 0; t < args.time; ++t)
      for (std::int64_t k = 0; k < 2 * args.state; ++k) sums(t)[k] = 0;
    A* head_sums = args.head_sums + item.sequence * 3 * args.heads;
    for (std::int64_t head = item.head; head < item.head + item.heads; ++head) {
      for (std::int64_t k = 0; k < 3; ++k) head_sums[k * args.heads + head] = 0;
      const std::int64_t of_head = (item.sequence * args.heads + head) * size;
      for (std::int64_t k = 0; k < size; ++k) r[k] = args.dlast == nullptr ? A{0} : args.dlast[of_head + k];
      for (std::int64_t chunk = ssd_chunks(args) - 1; chunk >= 0; --chunk) {
        const std::int64_t t0 = chunk * Q, t1 = t0 + Q < args.time ? t0 + Q : args.time;
        const A* kept = args.states + ((item.sequence * ssd_chunks(args) + chunk) * args.heads + head) * size;
        for (std::int64_t k = 0; k < size; ++k) h[k] = kept[k];
        for (std::int64_t t = t0; t < t1; ++t) {
          A* now = h + (t - t0 + 1) * size;
          for (std::int64_t k = 0; k < size; ++k) now[k] = (now - size)[k];
          ssd_advance<S>(args, item.sequence * args.time + t, head, ssd_begins(args, item.sequence, t), now,
                         nullptr);
        }
        for (std::int64_t t = t1 - 1; t >= t0; --t) {
          const A* now = h + (t - t0 + 1) * size;
          ssd_retreat(args, item.sequence * args.time + t, head, ssd_begins(args, item.sequence, t),
                      now - size, now, r, du, sums(t), head_sums);
        }
      }
      if (args.dinitial == nullptr) continue;
      for (std::int64_t k = 0; k < size; ++k) args.dinitial[of_head + k] = r[k];
    }
  }
}

template <class S>
void ssd_finish(const SsdArgs<S>& args, std::int64_t row_begin, std::int64_t row_end) {
  const std::int64_t width = 2 * args.state, heads_width = args.heads / args.groups * args.head_width;
  for (std::int64_t row = row_begin; row < row_end; ++row)
    for (std::int64_t group = 0; group < args.groups; ++group) {
      S* to = args.dxbc + row * ssd_row(args) + group * (heads_width + width) + heads_width;
      for (std::int64_t k = 0; k < width; ++k) {
        Arith<S> sum = 0;
        for (std::int64_t block = 0; block < ssd_head_blocks(args); ++block)
          sum += args.bc_sums[((block * args.batch * args.time + row) * args.groups + group) * width + k];
        to[k] = put<S>(sum);
      }
    }
}

template <class S>
void ssd_step(const SsdArgs<S>& args, const SsdPlaces<S>& places, std::int64_t head_begin,
              std::int64_t head_end) {
  for (std::int64_t t = 0; t < places.count; ++t) {
    const std::int64_t row = places.row + t;
    const bool begins =
        t == 0 ? places.begins : args.documents != nullptr && args.documents[row] != args.documents[row - 1];
    for (std::int64_t head = head_begin; head < head_end; ++head)
      ssd_advance(args, row, head, begins, places.state + head * args.state * args.head_width, args.y);
  }
}

}  // namespace tenon::kernels::reference
