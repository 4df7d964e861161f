// Kernel bodies of the state space model with one decay per head: what its passes share, the steps and their
// sums by tiles, the pass over chunks, and single places that go on with kept states. Products within chunks
// are in ssd_tiles.hpp, sums of the backward pass in ssd_backward.hpp.
//
// Per head: H_t = e^(l_t) H_(t-1) + B_t u_t', y_t = H_t' C_t + D x_t with u = delta x and l = -delta
// exp(a_log). l is -infinity where a document begins, so every decay across its border is e^-infinity = 0.
// Decays between two places are e to a sum of the l between them, never to a difference of longer sums.
#pragma once

#include <cmath>
#include <limits>
#include <tenon/kernels/cuda/rows.hpp>
#include <tenon/kernels/cuda/storage.hpp>

namespace tenon::kernels::cuda {

/// Places of a tile: a unit of the work within chunks.
inline constexpr int kSsdRows = 32;

template <class A>
struct SsdStep {
  A raw, free, delta;
};

/// Sizes, inputs of a call, and what is computed of them first.
template <class S>
struct SsdArgs {
  using A = Arith<S>;
  std::int64_t batch = 0, time = 0, heads = 0, head_width = 0, groups = 1, state = 0, chunk = 1;
  std::int64_t columns = 0;                    ///< of a row of `projected`
  const std::int64_t* step_columns = nullptr;  ///< [heads], of them
  A dt_min = 0, dt_max = 0;                    ///< 0 = no bound
  const S *xbc = nullptr, *projected = nullptr;
  const A *a_log = nullptr, *dt_bias = nullptr, *d = nullptr;
  const std::int32_t* documents = nullptr;
  const std::int32_t* before = nullptr;  ///< document of the place before the first, null = the first's own
  A *delta = nullptr, *l = nullptr;      ///< [batch, heads, time]
  A* tile_sums = nullptr;                ///< [batch, heads, chunks, tiles], of l

  TENON_BOTH std::int64_t per_group() const { return heads / groups; }
  TENON_BOTH std::int64_t group_columns() const { return per_group() * head_width + 2 * state; }
  TENON_BOTH std::int64_t xbc_columns() const { return heads * head_width + 2 * groups * state; }
  /// First columns in a row of xbc: x of a head, B and C of a group.
  TENON_BOTH std::int64_t x_column(std::int64_t head) const {
    return head / per_group() * group_columns() + head % per_group() * head_width;
  }
  TENON_BOTH std::int64_t b_column(std::int64_t group) const {
    return group * group_columns() + per_group() * head_width;
  }
  TENON_BOTH std::int64_t c_column(std::int64_t group) const { return b_column(group) + state; }

  TENON_BOTH std::int64_t chunks() const { return (time + chunk - 1) / chunk; }
  /// Tiles of a chunk; the last chunk may have fewer.
  TENON_BOTH std::int64_t tiles() const {
    return (chunk < time ? chunk + kSsdRows - 1 : time + kSsdRows - 1) / kSsdRows;
  }
  TENON_BOTH std::int64_t chunk_end(std::int64_t chunk_index) const {
    const std::int64_t end = (chunk_index + 1) * chunk;
    return end < time ? end : time;
  }
  TENON_BOTH std::int64_t tiles_of(std::int64_t chunk_index) const {
    return (chunk_end(chunk_index) - chunk_index * chunk + kSsdRows - 1) / kSsdRows;
  }
  std::int64_t places() const { return batch * heads * time; }
  std::int64_t all_tiles() const { return batch * heads * chunks() * tiles(); }
  std::int64_t state_elements() const { return batch * heads * state * head_width; }

  TENON_BOTH SsdStep<A> step(std::int64_t row, std::int64_t head) const {
    SsdStep<A> s{};
    s.raw = get(projected[row * columns + step_columns[head]]) + dt_bias[head];
    s.free = s.raw > 20 ? s.raw : std::log1p(std::exp(s.raw));
    s.delta = s.free;
    if (dt_min > 0 && s.delta < dt_min) s.delta = dt_min;
    if (dt_max > 0 && s.delta > dt_max) s.delta = dt_max;
    return s;
  }
  TENON_BOTH bool begins(std::int64_t row, std::int64_t t) const {
    if (documents == nullptr) return false;
    return t > 0 ? documents[row] != documents[row - 1] : before != nullptr && documents[row] != *before;
  }
  /// Sum of l over the tiles [first, end) of a chunk of one head.
  TENON_BOTH A sum_of_tiles(std::int64_t batch_head, std::int64_t chunk_index, std::int64_t first,
                            std::int64_t end) const {
    const A* const sums = tile_sums + (batch_head * chunks() + chunk_index) * tiles();
    A sum = 0;
    for (std::int64_t tile = first; tile < end; ++tile) sum = sum + sums[tile];
    return sum;
  }
  /// Where the state of a head is in [batch, chunks, heads, state, head_width].
  TENON_BOTH std::int64_t state_at(std::int64_t b, std::int64_t chunk_index, std::int64_t head) const {
    return ((b * chunks() + chunk_index) * heads + head) * state * head_width;
  }
};

/// Writes delta and l.
template <class S>
struct SsdSteps {
  using A = Arith<S>;
  SsdArgs<S> args;

  Grid mesh() const { return grid_for(args.places()); }

  TENON_BOTH void operator()(const Block& block) const {
    const SsdArgs<S>& g = args;
    for_each_element(block, g.batch * g.heads * g.time, [&](std::int64_t i) {
      const Divided of_head = divided(i, g.time), of_batch = divided(of_head.quotient, g.heads);
      const std::int64_t t = of_head.remainder, head = of_batch.remainder;
      const std::int64_t row = of_batch.quotient * g.time + t;
      const A delta = g.step(row, head).delta;
      g.delta[i] = delta;
      g.l[i] = g.begins(row, t) ? -std::numeric_limits<A>::infinity() : -delta * std::exp(g.a_log[head]);
    });
  }
};

/// Sums of l by tiles.
template <class S>
struct SsdTileSums {
  using A = Arith<S>;
  SsdArgs<S> args;

  Grid mesh() const { return grid_for(args.all_tiles()); }

  TENON_BOTH void operator()(const Block& block) const {
    const SsdArgs<S>& g = args;
    for_each_element(block, g.batch * g.heads * g.chunks() * g.tiles(), [&](std::int64_t i) {
      const Divided of_chunk = divided(i, g.tiles()), of_head = divided(of_chunk.quotient, g.chunks());
      const std::int64_t begin = of_head.remainder * g.chunk + of_chunk.remainder * kSsdRows;
      const std::int64_t limit = g.chunk_end(of_head.remainder);
      const std::int64_t end = begin + kSsdRows < limit ? begin + kSsdRows : limit;
      A sum = 0;
      for (std::int64_t t = begin; t < end; ++t) sum = sum + g.l[of_head.quotient * g.time + t];
      g.tile_sums[i] = sum;
    });
  }
};

/// The pass over chunks, in place. states has what each chunk adds; of kForward it gets H before each chunk,
/// of kBackward the gradient of H after each. `first` is H before all or the gradient after all, null =
/// zero; `last` gets H after all or the gradient before all, and may be null.
enum class SsdPass { kForward, kBackward };

template <class S, SsdPass kPass>
struct SsdPassStates {
  using A = Arith<S>;
  SsdArgs<S> args;
  A* states;  ///< [batch, chunks, heads, state, head_width]
  const A* first;
  A* last;

  Grid mesh() const { return grid_for(args.state_elements()); }

  TENON_BOTH void operator()(const Block& block) const {
    const SsdPassStates& a = *this;
    const SsdArgs<S>& g = args;
    const std::int64_t size = g.state * g.head_width;
    for_each_element(block, g.batch * g.heads * size, [&](std::int64_t i) {
      const Divided of_head = divided(i, size), of_batch = divided(of_head.quotient, g.heads);
      A value = a.first != nullptr ? a.first[i] : A{0};
      for (std::int64_t turn = 0; turn < g.chunks(); ++turn) {
        const std::int64_t chunk = kPass == SsdPass::kForward ? turn : g.chunks() - 1 - turn;
        A& at = a.states[g.state_at(of_batch.quotient, chunk, of_batch.remainder) + of_head.remainder];
        const A added = at;
        at = value;
        value = std::exp(g.sum_of_tiles(of_head.quotient, chunk, 0, g.tiles_of(chunk))) * value + added;
      }
      if (a.last != nullptr) a.last[i] = value;
    });
  }
};

/// What a row of a pass on kept states goes on with; count may be 0. The places before `done` have been
/// computed.
struct SsdRow {
  std::int64_t first, count, kept, done;
};

/// Places that go on with sequences, one after the other, and zeros of padding: a block has one head of a
/// row. Threads share the state's columns, and parts of its rows, whose sums are added in order.
template <class S>
struct SsdGoOn {
  using A = Arith<S>;
  SsdArgs<S> args;
  const SsdRow* rows;       ///< [batch]
  std::uint8_t* sequences;  ///< [sequences, sequence_bytes]
  std::int64_t sequence_bytes;
  S* y;

  Grid mesh() const { return {args.batch * args.heads, kThreads, kThreads * sizeof(A)}; }

  /// A sequence has H of every head, and the number of the last document.
  static constexpr std::int64_t bytes(std::int64_t heads, std::int64_t state, std::int64_t head_width) {
    return heads * state * head_width * std::int64_t{sizeof(A)} + std::int64_t{sizeof(std::int32_t)};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const SsdGoOn& a = *this;
    const SsdArgs<S>& g = args;
    const std::int64_t b = block.index() / g.heads, head = block.index() % g.heads,
                       group = head / g.per_group();
    const SsdRow row = rows[b];
    std::uint8_t* const kept = sequences + row.kept * sequence_bytes;
    A* const h = reinterpret_cast<A*>(kept) + head * g.state * g.head_width;
    const auto* const number = reinterpret_cast<const std::int32_t*>(kept + g.heads * g.state * g.head_width *
                                                                                std::int64_t{sizeof(A)});
    A* const sums = block.shared<A>();
    const std::int64_t across = g.head_width < block.threads() ? g.head_width : block.threads();
    const std::int64_t parts = block.threads() / across, length = (g.state + parts - 1) / parts;
    for (std::int64_t t = row.done; t < g.time; ++t) {
      const std::int64_t place = b * g.time + t;
      S* const to = a.y + (place * g.heads + head) * g.head_width;
      if (t >= row.count) {
        block.each([&](int thread) {
          for (std::int64_t p = thread; p < g.head_width; p += block.threads()) to[p] = put<S>(0);
        });
        continue;
      }
      // The sequence's first place, or that of another document than the place before.
      const bool fresh =
          (row.first == 0 && t == 0) ||
          (g.documents != nullptr && g.documents[place] != (t > 0 ? g.documents[place - 1] : *number));
      const A delta = g.step(place, head).delta, decay = std::exp(-delta * std::exp(g.a_log[head]));
      const S* const values = g.xbc + place * g.xbc_columns();
      const S *const x = values + g.x_column(head), *const bs = values + g.b_column(group),
                     *const cs = values + g.c_column(group);
      for (std::int64_t first = 0; first < g.head_width; first += across) {
        block.each([&](int thread) {
          const std::int64_t part = thread / across, p = first + thread % across;
          A sum = 0;
          if (part < parts && p < g.head_width) {
            const A u = delta * get(x[p]);
            const std::int64_t end = (part + 1) * length < g.state ? (part + 1) * length : g.state;
            for (std::int64_t n = part * length; n < end; ++n) {
              A& at = h[n * g.head_width + p];
              at = (fresh ? A{0} : decay * at) + get(bs[n]) * u;
              sum = sum + at * get(cs[n]);
            }
          }
          sums[thread] = sum;
        });
        block.each([&](int thread) {
          const std::int64_t p = first + thread;
          if (thread >= across || p >= g.head_width) return;
          A sum = g.d[head] * get(x[p]);
          for (std::int64_t part = 0; part < parts; ++part) sum = sum + sums[part * across + thread];
          to[p] = put<S>(sum);
        });
      }
    }
  }
};

/// Keeps the number of the last document of each row, after all heads of it have gone on.
template <class S>
struct SsdKeepDocuments {
  SsdArgs<S> args;
  const SsdRow* rows;
  std::uint8_t* sequences;
  std::int64_t sequence_bytes;

  Grid mesh() const { return grid_for(args.batch); }

  TENON_BOTH void operator()(const Block& block) const {
    const SsdKeepDocuments& a = *this;
    const SsdArgs<S>& g = args;
    for_each_element(block, g.batch, [&](std::int64_t b) {
      const SsdRow row = a.rows[b];
      if (row.count == 0) return;
      const std::int64_t states = g.heads * g.state * g.head_width * std::int64_t{sizeof(Arith<S>)};
      *reinterpret_cast<std::int32_t*>(a.sequences + row.kept * a.sequence_bytes + states) =
          g.documents[b * g.time + row.count - 1];
    });
  }
};

}  // namespace tenon::kernels::cuda
