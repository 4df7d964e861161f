// Backward pass of the state space model: the gradient of l, and of what it is computed from. With
// M_ij = e^(sum of l between) (C_i . B_j) (dY_i . u_j), and H before and R after a chunk,
//   dl_k = sum over i >= k of (O_i + sum over j < k of M_ij) + e^(sum of l) <H, R> + sum over j < k of T_j,
//   O_i = e^(l up to i) C_i' H dY_i,  T_j = e^(l after j) B_j' R u_j.
// Every term is a product that occurs, so nothing large cancels, as it would in differences of running sums.
// No sum depends on the order of blocks.
#pragma once

#include <tenon/kernels/cuda/ssd_tiles.hpp>

namespace tenon::kernels::cuda {

/// O of every place, of H (kForward), or T, of R (kBackward).
template <class S, SsdPass kPass>
struct SsdEdgeTerms {
  using A = Arith<S>;
  using Tiles = SsdTiles<A>;
  SsdArgs<S> args;
  const S* dy;
  const A* states;  ///< [batch, chunks, heads, state, head_width]
  A* terms;         ///< [batch, heads, time]

  Grid mesh() const {
    return {args.batch * args.chunks() * args.tiles() * args.heads, Tiles::kThreads,
            Tiles::kOperand + Tiles::kState + Tiles::kResult + 2 * Tiles::kPerRow};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const SsdEdgeTerms& a = *this;
    const SsdArgs<S>& g = args;
    const SsdTilePlace place = ssd_tile_place(g, block.index(), g.heads, 1);
    if (place.begin >= place.end) return;
    std::size_t at = 0;
    A* const x = block.shared<A>(at);
    A* const state = block.shared<A>(at += Tiles::kOperand);
    A* const result = block.shared<A>(at += Tiles::kState);
    A* const edges = block.shared<A>(at += Tiles::kResult);
    A* const sums = block.shared<A>(at += Tiles::kPerRow);
    constexpr bool kForward = kPass == SsdPass::kForward;
    const std::int64_t head = place.owner, batch_head = place.batch * g.heads + head;
    const auto v = ssd_vectors(g, dy, kForward ? SsdOperand::kDy : SsdOperand::kU, place.batch, head);
    const auto c = ssd_vectors(g, dy, kForward ? SsdOperand::kC : SsdOperand::kB, place.batch, head);
    const A* const from = states + g.state_at(place.batch, place.chunk, head);
    const A outside = kForward
                          ? g.sum_of_tiles(batch_head, place.chunk, 0, place.tile)
                          : g.sum_of_tiles(batch_head, place.chunk, place.tile + 1, g.tiles_of(place.chunk));
    block.each([&](int thread) {
      if (thread >= Tiles::kRows) return;
      ssd_edges(g.l + batch_head * g.time, place.begin, place.end,
                kForward ? SsdOthers::kEarlier : SsdOthers::kLater, edges, thread);
      sums[thread] = 0;
    });
    for (int of_state = 0; of_state < Tiles::slices(g.state); ++of_state) {
      const int width = Tiles::width_of(g.state, of_state);
      for (int of_head = 0; of_head < Tiles::slices(g.head_width); ++of_head) {
        block.each([&](int thread) {
          ssd_load(v, place.begin, place.end, of_head, static_cast<const A*>(nullptr), x, thread);
          ssd_load_state(from, g.state, g.head_width, of_state, of_head, state, thread);
        });
        multiply_tiles<Stored::kPlain, Stored::kTransposed>(
            block, TileProduct<A>{x, Tiles::kStride, state, Tiles::kStride, result, Tiles::kResultStride,
                                  Tiles::padded(place.end - place.begin), width,
                                  Tiles::width_of(g.head_width, of_head), of_head > 0});
      }
      block.each([&](int thread) {
        const std::int64_t t = place.begin + thread, first = std::int64_t{of_state} * Tiles::kSlice;
        if (thread >= Tiles::kRows || t >= place.end) return;
        A sum = sums[thread];
        for (int j = 0; j < width && first + j < g.state; ++j)
          sum = sum + get(c.at[t * c.stride + first + j]) * result[thread * Tiles::kResultStride + j];
        sums[thread] = sum;
      });
    }
    block.each([&](int thread) {
      const std::int64_t t = place.begin + thread;
      if (thread >= Tiles::kRows || t >= place.end) return;
      a.terms[batch_head * g.time + t] = std::exp(edges[thread] + outside) * sums[thread];
    });
  }
};

/// e^(sum of l) <H, R> of every chunk.
template <class S>
struct SsdStateProducts {
  using A = Arith<S>;
  SsdArgs<S> args;
  const A *before, *after;  ///< [batch, chunks, heads, state, head_width]
  A* products;              ///< [batch, heads, chunks]

  Grid mesh() const { return {args.batch * args.heads * args.chunks(), kThreads, kThreads * sizeof(A)}; }

  TENON_BOTH void operator()(const Block& block) const {
    const SsdStateProducts& a = *this;
    const SsdArgs<S>& g = args;
    const std::int64_t chunk = block.index() % g.chunks(), batch_head = block.index() / g.chunks();
    const std::int64_t at = g.state_at(batch_head / g.heads, chunk, batch_head % g.heads);
    const A sum = sum_over(block, block.shared<A>(), g.state * g.head_width,
                           [&](std::int64_t i) { return a.before[at + i] * a.after[at + i]; });
    block.each([&](int thread) {
      if (thread == 0)
        a.products[block.index()] = std::exp(g.sum_of_tiles(batch_head, chunk, 0, g.tiles_of(chunk))) * sum;
    });
  }
};

/// parts[k, tile] = sum over i of the tile, i >= k, of (O_i + sum over j < k of M_ij), for tiles from that of
/// k on: a block has a tile of i.
template <class S>
struct SsdDecayGradients {
  using A = Arith<S>;
  using Tiles = SsdTiles<A>;
  SsdArgs<S> args;
  const S* dy;
  const A* terms;  ///< O: [batch, heads, time]
  A* parts;        ///< [batch, heads, time, tiles]

  Grid mesh() const {
    return {args.batch * args.chunks() * args.tiles() * args.heads, Tiles::kThreads,
            2 * Tiles::kOperand + 2 * Tiles::kScores + 3 * Tiles::kPerRow};
  }

  struct Memory {
    A *x, *z, *products, *scores, *edges, *other_edges, *sums;
    TENON_BOTH explicit Memory(const Block& block) {
      std::size_t at = 0;
      x = block.shared<A>(at);
      z = block.shared<A>(at += Tiles::kOperand);
      products = block.shared<A>(at += Tiles::kOperand);
      scores = block.shared<A>(at += Tiles::kScores);
      edges = block.shared<A>(at += Tiles::kScores);
      other_edges = block.shared<A>(at += Tiles::kPerRow);
      sums = block.shared<A>(at += Tiles::kPerRow);
    }
  };

  TENON_BOTH void operator()(const Block& block) const {
    const SsdDecayGradients& a = *this;
    const SsdArgs<S>& g = args;
    const SsdTilePlace place = ssd_tile_place(g, block.index(), g.heads, 1);
    if (place.begin >= place.end) return;
    const Memory m(block);
    const std::int64_t batch_head = place.batch * g.heads + place.owner;
    const A* const l = g.l + batch_head * g.time;
    block.each([&](int thread) {
      const std::int64_t t = place.begin + thread;
      if (thread >= Tiles::kRows) return;
      ssd_edges(l, place.begin, place.end, SsdOthers::kEarlier, m.edges, thread);
      m.sums[thread] = t < place.end ? a.terms[batch_head * g.time + t] : A{0};
    });
    for (std::int64_t tile = 0; tile <= place.tile; ++tile) {
      const std::int64_t begin = place.chunk * g.chunk + tile * kSsdRows;
      const std::int64_t end = begin + kSsdRows < place.end ? begin + kSsdRows : place.end;
      add_products(block, m, place, begin, end, SsdOperand::kC, SsdOperand::kB, m.scores);
      add_products(block, m, place, begin, end, SsdOperand::kDy, SsdOperand::kU, m.products);
      const A between = g.sum_of_tiles(batch_head, place.chunk, tile + 1, place.tile);
      const int rows = Tiles::padded(place.end - place.begin), columns = Tiles::padded(end - begin);
      block.each([&](int thread) { ssd_edges(l, begin, end, SsdOthers::kLater, m.other_edges, thread); });
      block.each([&](int thread) {
        for (int i = thread; i < rows * columns; i += Tiles::kThreads) {
          const int own = i / columns, other = i % columns;
          const int at = own * Tiles::kScoreStride + other;
          A decay = 0;
          if (place.begin + own < place.end && begin + other < end) {
            decay = tile == place.tile ? ssd_decay_within(l + begin, SsdOthers::kEarlier, own, other)
                                       : std::exp(m.edges[own] + between + m.other_edges[other]);
          }
          m.scores[at] = m.scores[at] * decay * m.products[at];
        }
      });
      // Running sums of rows, without the column's own.
      block.each([&](int thread) {
        if (thread >= rows) return;
        A sum = m.sums[thread];
        for (int other = 0; other < columns; ++other) {
          A& at = m.scores[thread * Tiles::kScoreStride + other];
          const A own = at;
          at = sum;
          sum = sum + own;
        }
        m.sums[thread] = sum;
      });
      block.each([&](int thread) {
        if (thread >= Tiles::kRows || begin + thread >= end) return;
        A sum = 0;
        const int own_end = static_cast<int>(place.end - place.begin);
        for (int own = tile == place.tile ? thread : 0; own < own_end; ++own)
          sum = sum + m.scores[own * Tiles::kScoreStride + thread];
        a.parts[(batch_head * g.time + begin + thread) * g.tiles() + place.tile] = sum;
      });
    }
  }

 private:
  /// scores = X Z' of the own tile and another.
  TENON_BOTH void add_products(const Block& block, const Memory& m, const SsdTilePlace& place,
                               std::int64_t begin, std::int64_t end, SsdOperand of_own, SsdOperand of_other,
                               A* scores) const {
    const auto x = ssd_vectors(args, dy, of_own, place.batch, place.owner),
               z = ssd_vectors(args, dy, of_other, place.batch, place.owner);
    for (int slice = 0; slice < Tiles::slices(x.width); ++slice) {
      block.each([&](int thread) {
        ssd_load(x, place.begin, place.end, slice, static_cast<const A*>(nullptr), m.x, thread);
        ssd_load(z, begin, end, slice, static_cast<const A*>(nullptr), m.z, thread);
      });
      multiply_tiles<Stored::kPlain, Stored::kTransposed>(
          block, TileProduct<A>{m.x, Tiles::kStride, m.z, Tiles::kStride, scores, Tiles::kScoreStride,
                                Tiles::padded(place.end - place.begin), Tiles::padded(end - begin),
                                Tiles::width_of(x.width, slice), slice > 0});
    }
  }
};

/// The gradient of the steps, and each place's terms of those of the heads' parameters.
template <class S>
struct SsdStepGradients {
  using A = Arith<S>;
  SsdArgs<S> args;
  int slices;         ///< of a head, in x_du
  const A* parts;     ///< of SsdDecayGradients
  const A* products;  ///< of SsdStateProducts
  const A* terms;     ///< T: [batch, heads, time]
  const A* x_du;      ///< of SsdTileProducts
  S* dprojected;
  A *of_rate, *of_steps;  ///< [batch, heads, time]: terms of the gradients of a_log and dt_bias

  Grid mesh() const { return grid_for(args.places()); }

  TENON_BOTH void operator()(const Block& block) const {
    const SsdStepGradients& a = *this;
    const SsdArgs<S>& g = args;
    const std::int64_t places = g.batch * g.heads * g.time;
    for_each_element(block, places, [&](std::int64_t i) {
      const Divided of_head = divided(i, g.time), of_batch = divided(of_head.quotient, g.heads);
      const std::int64_t t = of_head.remainder, head = of_batch.remainder, chunk = t / g.chunk;
      const std::int64_t begin = chunk * g.chunk, row = of_batch.quotient * g.time + t;
      A dl = a.products[of_head.quotient * g.chunks() + chunk];
      for (std::int64_t j = begin; j < t; ++j) dl = dl + a.terms[of_head.quotient * g.time + j];
      for (std::int64_t tile = (t - begin) / kSsdRows; tile < g.tiles_of(chunk); ++tile)
        dl = dl + a.parts[i * g.tiles() + tile];
      const SsdStep<A> step = g.step(row, head);
      const A rate = -std::exp(g.a_log[head]);
      A ddelta = rate * dl;
      for (int slice = 0; slice < a.slices; ++slice) ddelta = ddelta + a.x_du[slice * places + i];
      const A dstep = step.delta == step.free ? ddelta / (1 + std::exp(-step.raw)) : A{0};
      a.dprojected[row * g.columns + g.step_columns[head]] = put<S>(dstep);
      a.of_rate[i] = step.delta * rate * dl;
      a.of_steps[i] = dstep;
    });
  }
};

/// Gradients of a_log, dt_bias and D, a block for each head; null where one is not wanted.
template <class S>
struct SsdHeadSums {
  using A = Arith<S>;
  SsdArgs<S> args;
  int slices;
  const A *of_rate, *of_steps, *x_dy;
  A *da_log, *ddt_bias, *dd;
  bool accumulate;

  Grid mesh() const { return {args.heads, kThreads, kThreads * sizeof(Sums<A, 3>)}; }

  TENON_BOTH void operator()(const Block& block) const {
    const SsdHeadSums& a = *this;
    const SsdArgs<S>& g = args;
    const std::int64_t head = block.index(), places = g.batch * g.heads * g.time;
    const Sums<A, 3> sums =
        sum_over(block, block.shared<Sums<A, 3>>(), g.batch * g.time, [&](std::int64_t j) {
          const Divided of_batch = divided(j, g.time);
          const std::int64_t i = (of_batch.quotient * g.heads + head) * g.time + of_batch.remainder;
          A of_d = 0;
          for (int slice = 0; slice < a.slices; ++slice) of_d = of_d + a.x_dy[slice * places + i];
          return Sums<A, 3>{{a.of_rate[i], a.of_steps[i], of_d}};
        });
    block.each([&](int thread) {
      if (thread > 0) return;
      A* const to[] = {a.da_log, a.ddt_bias, a.dd};
      for (int k = 0; k < 3; ++k)
        if (to[k] != nullptr) to[k][head] = a.accumulate ? to[k][head] + sums.of[k] : sums.of[k];
    });
  }
};

}  // namespace tenon::kernels::cuda
