// Products of the state space model within chunks, by tiles of 32 places. One body has the outputs and three
// of the gradients, which are the same sum: of a place's own vector X, the partner Z and the payload V of the
// places it is coupled to, and the state G at the chunk's edge,
//   out = sum over others of e^(sum of l between) (X . Z) V + e^(sum of l up to the edge) X G.
// Sums over the heads of a group are made by one block, head after head.
#pragma once

#include <tenon/kernels/cuda/ssd.hpp>
#include <tenon/kernels/cuda/tile_products.hpp>

namespace tenon::kernels::cuda {

/// Sizes of tiles in shared memory; operands are in the arithmetic type, whose products they are.
template <class A>
struct SsdTiles {
  static constexpr int kRows = kSsdRows;
  static constexpr int kSlice = sizeof(A) == sizeof(double) ? 32 : 64;  ///< columns at a time
  static constexpr int kThreads = 128;
  static constexpr int kStride = kSlice + 1, kScoreStride = kRows + 4, kResultStride = kSlice + 4;
  static constexpr std::size_t kOperand = sizeof(A) * kRows * kStride;
  static constexpr std::size_t kState = sizeof(A) * kSlice * kStride;  ///< a slice by a slice of a state
  static constexpr std::size_t kScores = sizeof(A) * kRows * kScoreStride;
  static constexpr std::size_t kResult = sizeof(A) * kRows * kResultStride;
  static constexpr std::size_t kPerRow = sizeof(A) * kRows;

  TENON_BOTH static int slices(std::int64_t width) { return static_cast<int>((width + kSlice - 1) / kSlice); }
  /// A multiple of what products need.
  TENON_BOTH static int padded(std::int64_t count) { return static_cast<int>((count + 3) / 4 * 4); }
  /// Columns of a slice, padded.
  TENON_BOTH static int width_of(std::int64_t width, int slice) {
    const std::int64_t left = width - std::int64_t{slice} * kSlice;
    return left >= kSlice ? kSlice : padded(left);
  }
};

/// A tile's place: rows [begin, end) of `time`, in a chunk, of one head or group.
struct SsdTilePlace {
  std::int64_t batch, owner, chunk, tile, begin, end;
  int slice;
};
template <class S>
TENON_BOTH SsdTilePlace ssd_tile_place(const SsdArgs<S>& g, std::int64_t index, std::int64_t owners,
                                       int slices) {
  SsdTilePlace at{};
  at.slice = static_cast<int>(index % slices);
  std::int64_t rest = index / slices;
  at.owner = rest % owners, rest /= owners;
  at.tile = rest % g.tiles(), rest /= g.tiles();
  at.chunk = rest % g.chunks();
  at.batch = rest / g.chunks();
  at.begin = at.chunk * g.chunk + at.tile * kSsdRows;
  const std::int64_t end = g.chunk_end(at.chunk);
  at.end = at.begin + kSsdRows < end ? at.begin + kSsdRows : end;
  return at;
}

/// Vectors of places of one head: row t begins at `at` + t * stride; each times factor[t], null = 1.
template <class S>
struct SsdVectors {
  const S* at;
  std::int64_t stride, width;
  const Arith<S>* factor;
};

/// x, delta x, B, C or dY of a head.
enum class SsdOperand { kU, kB, kC, kDy };
template <class S>
TENON_BOTH SsdVectors<S> ssd_vectors(const SsdArgs<S>& g, const S* dy, SsdOperand operand, std::int64_t b,
                                     std::int64_t head) {
  const std::int64_t group = head / g.per_group(), stride = g.xbc_columns();
  const S* const row = g.xbc + b * g.time * stride;
  switch (operand) {
    case SsdOperand::kU:
      return {row + g.x_column(head), stride, g.head_width, g.delta + (b * g.heads + head) * g.time};
    case SsdOperand::kB:
      return {row + g.b_column(group), stride, g.state, nullptr};
    case SsdOperand::kC:
      return {row + g.c_column(group), stride, g.state, nullptr};
    default:
      return {dy + (b * g.time * g.heads + head) * g.head_width, g.heads * g.head_width, g.head_width,
              nullptr};
  }
}

/// One thread's share of a tile: rows [begin, end) of a slice, each times e^(decay of its row) where there
/// are decays; zeros in what pads it.
template <class S>
TENON_BOTH void ssd_load(const SsdVectors<S>& of, std::int64_t begin, std::int64_t end, int slice,
                         const Arith<S>* decays, Arith<S>* tile, int thread) {
  using A = Arith<S>;
  using Tiles = SsdTiles<A>;
  const int width = Tiles::width_of(of.width, slice);
  for (int i = thread; i < Tiles::padded(end - begin) * width; i += Tiles::kThreads) {
    const int row = i / width, column = i % width;
    const std::int64_t t = begin + row, j = std::int64_t{slice} * Tiles::kSlice + column;
    A value = 0;
    if (t < end && j < of.width) {
      value = get(of.at[t * of.stride + j]);
      if (of.factor != nullptr) value = value * of.factor[t];
      if (decays != nullptr) value = value * std::exp(decays[row]);
    }
    tile[row * Tiles::kStride + column] = value;
  }
}

/// One thread's share of a slice by a slice of a state [state, head_width]; zeros beyond.
template <class A>
TENON_BOTH void ssd_load_state(const A* from, std::int64_t state, std::int64_t head_width, int of_state,
                               int of_head, A* tile, int thread) {
  using Tiles = SsdTiles<A>;
  const int rows = Tiles::width_of(state, of_state), width = Tiles::width_of(head_width, of_head);
  for (int i = thread; i < rows * width; i += Tiles::kThreads) {
    const std::int64_t n = std::int64_t{of_state} * Tiles::kSlice + i / width,
                       p = std::int64_t{of_head} * Tiles::kSlice + i % width;
    tile[i / width * Tiles::kStride + i % width] =
        n < state && p < head_width ? from[n * head_width + p] : A{0};
  }
}

/// Which places a tile is coupled to: those before it in its chunk and itself, or those after it and itself.
enum class SsdOthers { kEarlier, kLater };

/// edges[row] = the sum of l between a row and an edge of its tile: from the tile's begin up to the row with
/// it, or from after the row to the tile's end. One thread's share.
template <class A>
TENON_BOTH void ssd_edges(const A* l, std::int64_t begin, std::int64_t end, SsdOthers toward, A* edges,
                          int thread) {
  if (thread >= kSsdRows) return;
  const std::int64_t t = begin + thread;
  A sum = 0;
  if (toward == SsdOthers::kEarlier) {
    for (std::int64_t k = begin; k <= t && k < end; ++k) sum = sum + l[k];
  } else {
    for (std::int64_t k = t + 1; k < end; ++k) sum = sum + l[k];
  }
  edges[thread] = sum;
}

/// e to the sum of l between a place and another, or 0 where they are not coupled. Of one tile: own and other
/// are rows of it, and `l` is that of its first; of two: by the sums up to their edges and of what is
/// between.
template <class A>
TENON_BOTH A ssd_decay_within(const A* l, SsdOthers others, int own, int other) {
  const int from = others == SsdOthers::kEarlier ? other : own,
            to = others == SsdOthers::kEarlier ? own : other;
  if (from > to) return A{0};
  A sum = 0;
  for (int k = from + 1; k <= to; ++k) sum = sum + l[k];
  return std::exp(sum);
}

/// Outputs, or one of the gradients: of delta x, C or B.
enum class SsdRole { kY, kDu, kDc, kDb };

template <class S, SsdRole kRole>
struct SsdTileProducts {
  using A = Arith<S>;
  using Tiles = SsdTiles<A>;
  static constexpr bool kToState = kRole == SsdRole::kDc || kRole == SsdRole::kDb;  ///< heads are summed
  static constexpr SsdOthers kOthers =
      kRole == SsdRole::kY || kRole == SsdRole::kDc ? SsdOthers::kEarlier : SsdOthers::kLater;
  static constexpr SsdOperand kX = kRole == SsdRole::kY    ? SsdOperand::kC
                                   : kRole == SsdRole::kDu ? SsdOperand::kB
                                   : kRole == SsdRole::kDc ? SsdOperand::kDy
                                                           : SsdOperand::kU;
  static constexpr SsdOperand kZ = kRole == SsdRole::kY    ? SsdOperand::kB
                                   : kRole == SsdRole::kDu ? SsdOperand::kC
                                   : kRole == SsdRole::kDc ? SsdOperand::kU
                                                           : SsdOperand::kDy;
  static constexpr SsdOperand kV = kRole == SsdRole::kY    ? SsdOperand::kU
                                   : kRole == SsdRole::kDu ? SsdOperand::kDy
                                   : kRole == SsdRole::kDc ? SsdOperand::kB
                                                           : SsdOperand::kC;

  SsdArgs<S> args;
  const S* dy = nullptr;      ///< of gradients
  const A* states = nullptr;  ///< [batch, chunks, heads, state, head_width]: H before, or the gradient after
  S* out = nullptr;           ///< y, or xbc's gradient
  A *x_du = nullptr,
    *x_dy = nullptr;  ///< kDu: [slices, batch, heads, time], sums over a slice of x du and x dY

  TENON_BOTH std::int64_t owners() const { return kToState ? args.groups : args.heads; }
  TENON_BOTH std::int64_t out_width() const { return kToState ? args.state : args.head_width; }
  Grid mesh() const {
    const std::size_t bytes =
        2 * Tiles::kOperand + Tiles::kState + Tiles::kScores + Tiles::kResult + 2 * Tiles::kPerRow;
    return {args.batch * args.chunks() * args.tiles() * owners() * Tiles::slices(out_width()),
            Tiles::kThreads, bytes};
  }

  struct Memory {
    A *x, *z, *state, *scores, *result, *edges, *other_edges;
    TENON_BOTH explicit Memory(const Block& block) {
      std::size_t at = 0;
      x = block.shared<A>(at);
      z = block.shared<A>(at += Tiles::kOperand);
      state = block.shared<A>(at += Tiles::kOperand);
      scores = block.shared<A>(at += Tiles::kState);
      result = block.shared<A>(at += Tiles::kScores);
      edges = block.shared<A>(at += Tiles::kResult);
      other_edges = block.shared<A>(at += Tiles::kPerRow);
    }
  };

  TENON_BOTH void operator()(const Block& block) const {
    const SsdTilePlace place = ssd_tile_place(args, block.index(), owners(), Tiles::slices(out_width()));
    if (place.begin >= place.end) return;
    const Memory memory(block);
    block.each([&](int thread) {
      for (int i = thread; i < Tiles::kRows * Tiles::kResultStride; i += Tiles::kThreads)
        memory.result[i] = 0;
    });
    const std::int64_t first = kToState ? place.owner * args.per_group() : place.owner;
    const std::int64_t end = kToState ? first + args.per_group() : first + 1;
    for (std::int64_t head = first; head < end; ++head) add_head(block, memory, place, head);
    store(block, memory, place);
  }

 private:
  /// result += the sum of one head.
  TENON_BOTH void add_head(const Block& block, const Memory& m, const SsdTilePlace& place,
                           std::int64_t head) const {
    const SsdArgs<S>& g = args;
    const std::int64_t batch_head = place.batch * g.heads + head, last = g.tiles_of(place.chunk) - 1;
    const A* const l = g.l + batch_head * g.time;
    const auto x = ssd_vectors(g, dy, kX, place.batch, head), z = ssd_vectors(g, dy, kZ, place.batch, head),
               v = ssd_vectors(g, dy, kV, place.batch, head);
    block.each([&](int thread) { ssd_edges(l, place.begin, place.end, kOthers, m.edges, thread); });
    const std::int64_t others = kOthers == SsdOthers::kEarlier ? place.tile + 1 : last - place.tile + 1;
    const int rows = Tiles::padded(place.end - place.begin);
    A between = 0;  // the sum of l over the tiles between
    for (std::int64_t turn = 0; turn < others; ++turn) {
      const std::int64_t tile = kOthers == SsdOthers::kEarlier ? place.tile - turn : place.tile + turn;
      const std::int64_t begin = place.chunk * g.chunk + tile * kSsdRows, limit = g.chunk_end(place.chunk);
      const std::int64_t end = begin + kSsdRows < limit ? begin + kSsdRows : limit;
      const int columns = Tiles::padded(end - begin);
      for (int slice = 0; slice < Tiles::slices(x.width); ++slice) {
        block.each([&](int thread) {
          ssd_load(x, place.begin, place.end, slice, static_cast<const A*>(nullptr), m.x, thread);
          ssd_load(z, begin, end, slice, static_cast<const A*>(nullptr), m.z, thread);
        });
        multiply_tiles<Stored::kPlain, Stored::kTransposed>(
            block, TileProduct<A>{m.x, Tiles::kStride, m.z, Tiles::kStride, m.scores, Tiles::kScoreStride,
                                  rows, columns, Tiles::width_of(x.width, slice), slice > 0});
      }
      block.each([&](int thread) {
        ssd_load(v, begin, end, place.slice, static_cast<const A*>(nullptr), m.z, thread);
        constexpr SsdOthers kToward =
            kOthers == SsdOthers::kEarlier ? SsdOthers::kLater : SsdOthers::kEarlier;
        ssd_edges(l, begin, end, kToward, m.other_edges, thread);
      });
      block.each([&](int thread) {
        for (int i = thread; i < rows * columns; i += Tiles::kThreads) {
          const int own = i / columns, other = i % columns;
          A decay = 0;
          if (place.begin + own < place.end && begin + other < end) {
            decay = turn == 0 ? ssd_decay_within(l + begin, kOthers, own, other)
                              : std::exp(m.edges[own] + between + m.other_edges[other]);
          }
          A& score = m.scores[own * Tiles::kScoreStride + other];
          score = score * decay;
        }
      });
      multiply_tiles<Stored::kPlain, Stored::kPlain>(
          block,
          TileProduct<A>{m.scores, Tiles::kScoreStride, m.z, Tiles::kStride, m.result, Tiles::kResultStride,
                         rows, Tiles::width_of(v.width, place.slice), columns, true});
      if (turn > 0) between = between + g.sum_of_tiles(batch_head, place.chunk, tile, tile + 1);
    }
    add_edge(block, m, place, head, x, between);
  }

  /// result += e^(sum of l up to the chunk's edge) X G, of one head.
  TENON_BOTH void add_edge(const Block& block, const Memory& m, const SsdTilePlace& place, std::int64_t head,
                           const SsdVectors<S>& x, A between) const {
    const SsdArgs<S>& g = args;
    const A* const from = states + g.state_at(place.batch, place.chunk, head);
    block.each([&](int thread) {
      if (thread < Tiles::kRows) m.edges[thread] = m.edges[thread] + between;
    });
    for (int slice = 0; slice < Tiles::slices(x.width); ++slice) {
      block.each([&](int thread) {
        ssd_load(x, place.begin, place.end, slice, static_cast<const A*>(m.edges), m.x, thread);
        ssd_load_state(from, g.state, g.head_width, kToState ? place.slice : slice,
                       kToState ? slice : place.slice, m.state, thread);
      });
      const TileProduct<A> product{m.x,
                                   Tiles::kStride,
                                   m.state,
                                   Tiles::kStride,
                                   m.result,
                                   Tiles::kResultStride,
                                   Tiles::padded(place.end - place.begin),
                                   Tiles::width_of(out_width(), place.slice),
                                   Tiles::width_of(x.width, slice),
                                   true};
      if constexpr (kToState) {
        multiply_tiles<Stored::kPlain, Stored::kTransposed>(block, product);
      } else {
        multiply_tiles<Stored::kPlain, Stored::kPlain>(block, product);
      }
    }
  }

  TENON_BOTH void store(const Block& block, const Memory& m, const SsdTilePlace& place) const {
    const SsdTileProducts& a = *this;
    const SsdArgs<S>& g = args;
    const int width = Tiles::width_of(out_width(), place.slice);
    const std::int64_t head = place.owner;  // of outputs that are of one head
    block.each([&](int thread) {
      for (int i = thread; i < Tiles::kRows * width; i += Tiles::kThreads) {
        const int row = i / width, column = i % width;
        const std::int64_t t = place.begin + row, j = std::int64_t{place.slice} * Tiles::kSlice + column;
        if (t >= place.end || j >= a.out_width()) continue;
        const std::int64_t at = place.batch * g.time + t;
        const A sum = m.result[row * Tiles::kResultStride + column];
        if constexpr (kRole == SsdRole::kY) {
          const A x = get(g.xbc[at * g.xbc_columns() + g.x_column(head) + j]);
          a.out[(at * g.heads + head) * g.head_width + j] = put<S>(sum + g.d[head] * x);
        } else if constexpr (kRole == SsdRole::kDu) {
          const A above = get(a.dy[(at * g.heads + head) * g.head_width + j]);
          const A delta = g.delta[(place.batch * g.heads + head) * g.time + t];
          a.out[at * g.xbc_columns() + g.x_column(head) + j] = put<S>(delta * sum + g.d[head] * above);
        } else {
          const std::int64_t first =
              kRole == SsdRole::kDc ? g.c_column(place.owner) : g.b_column(place.owner);
          a.out[at * g.xbc_columns() + first + j] = put<S>(sum);
        }
      }
      if constexpr (kRole == SsdRole::kDu) a.store_sums(m, place, thread);
    });
  }

  /// Writes, of kDu, the sums over a slice for the gradients of delta and D.
  TENON_BOTH void store_sums(const Memory& m, const SsdTilePlace& place, int thread) const {
    const SsdArgs<S>& g = args;
    const std::int64_t t = place.begin + thread, head = place.owner, at = place.batch * g.time + t;
    if (thread >= Tiles::kRows || t >= place.end) return;
    const std::int64_t begin = std::int64_t{place.slice} * Tiles::kSlice;
    const std::int64_t width = g.head_width - begin < Tiles::kSlice ? g.head_width - begin : Tiles::kSlice;
    const S* const x = g.xbc + at * g.xbc_columns() + g.x_column(head) + begin;
    const S* const above = dy + (at * g.heads + head) * g.head_width + begin;
    A of_du = 0, of_dy = 0;
    for (std::int64_t j = 0; j < width; ++j) {
      of_du = of_du + get(x[j]) * m.result[thread * Tiles::kResultStride + j];
      of_dy = of_dy + get(x[j]) * get(above[j]);
    }
    const std::int64_t i = ((place.slice * g.batch + place.batch) * g.heads + head) * g.time + t;
    x_du[i] = of_du, x_dy[i] = of_dy;
  }
};

/// What a chunk adds to the state after it, the sum of e^(l after j) B_j u_j', or to the gradient of the
/// state before it, the sum of e^(l up to i) C_i dY_i'.
template <class S, SsdPass kPass>
struct SsdChunkStates {
  using A = Arith<S>;
  using Tiles = SsdTiles<A>;
  SsdArgs<S> args;
  const S* dy;
  A* states;  ///< [batch, chunks, heads, state, head_width]

  Grid mesh() const {
    const std::size_t bytes =
        2 * Tiles::kOperand + sizeof(A) * Tiles::kSlice * Tiles::kResultStride + Tiles::kPerRow;
    return {
        args.batch * args.chunks() * args.heads * Tiles::slices(args.state) * Tiles::slices(args.head_width),
        Tiles::kThreads, bytes};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const SsdArgs<S>& g = args;
    std::int64_t rest = block.index();
    const int of_head = static_cast<int>(rest % Tiles::slices(g.head_width));
    rest /= Tiles::slices(g.head_width);
    const int of_state = static_cast<int>(rest % Tiles::slices(g.state));
    rest /= Tiles::slices(g.state);
    const std::int64_t head = rest % g.heads, chunk = rest / g.heads % g.chunks(),
                       b = rest / g.heads / g.chunks();
    std::size_t at = 0;
    A* const left = block.shared<A>(at);
    A* const right = block.shared<A>(at += Tiles::kOperand);
    A* const result = block.shared<A>(at += Tiles::kOperand);
    A* const edges = block.shared<A>(at += sizeof(A) * Tiles::kSlice * Tiles::kResultStride);
    constexpr bool kForward = kPass == SsdPass::kForward;
    const auto x = ssd_vectors(g, dy, kForward ? SsdOperand::kB : SsdOperand::kC, b, head);
    const auto v = ssd_vectors(g, dy, kForward ? SsdOperand::kU : SsdOperand::kDy, b, head);
    const std::int64_t batch_head = b * g.heads + head, tiles = g.tiles_of(chunk);
    const A* const l = g.l + batch_head * g.time;
    const int rows = Tiles::width_of(g.state, of_state), width = Tiles::width_of(g.head_width, of_head);
    for (std::int64_t turn = 0; turn < tiles; ++turn) {
      const std::int64_t tile = kForward ? turn : tiles - 1 - turn;
      const std::int64_t begin = chunk * g.chunk + tile * kSsdRows, limit = g.chunk_end(chunk);
      const std::int64_t end = begin + kSsdRows < limit ? begin + kSsdRows : limit;
      const A decay = std::exp(g.sum_of_tiles(batch_head, chunk, tile, tile + 1));
      block.each([&](int thread) {
        ssd_edges(l, begin, end, kForward ? SsdOthers::kLater : SsdOthers::kEarlier, edges, thread);
        if (turn == 0) return;
        for (int i = thread; i < rows * width; i += Tiles::kThreads) {
          A& sum = result[i / width * Tiles::kResultStride + i % width];
          sum = sum * decay;
        }
      });
      block.each([&](int thread) {
        ssd_load(x, begin, end, of_state, static_cast<const A*>(edges), left, thread);
        ssd_load(v, begin, end, of_head, static_cast<const A*>(nullptr), right, thread);
      });
      multiply_tiles<Stored::kTransposed, Stored::kPlain>(
          block, TileProduct<A>{left, Tiles::kStride, right, Tiles::kStride, result, Tiles::kResultStride,
                                rows, width, Tiles::padded(end - begin), turn > 0});
    }
    A* const to = states + g.state_at(b, chunk, head);
    block.each([&](int thread) {
      for (int i = thread; i < rows * width; i += Tiles::kThreads) {
        const std::int64_t n = std::int64_t{of_state} * Tiles::kSlice + i / width,
                           p = std::int64_t{of_head} * Tiles::kSlice + i % width;
        if (n < g.state && p < g.head_width)
          to[n * g.head_width + p] = result[i / width * Tiles::kResultStride + i % width];
      }
    });
  }
};

}  // namespace tenon::kernels::cuda
