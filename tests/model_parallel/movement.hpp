// Properties P1 and P2: results of random moves, and that a move and its reverse are the identity.
#pragma once

#include "trials.hpp"

namespace model_parallel {

/// The window of `rank`, element by element: the tensor's values, 0 beyond it. `received`: how many of its
/// elements belong to other ranks.
inline std::vector<double> window_of(const MoveSpec& spec, const std::vector<int>& mesh, int rank,
                                     const Shape& local, std::uint64_t stream, std::int64_t& received) {
  const Box own = part(spec.from, mesh, rank), out = part(spec.to, mesh, rank);
  std::vector<double> values(local.elements(), 0);
  std::vector<std::int64_t> begin;
  for (int dim = 0; dim < local.rank(); ++dim) {
    const auto& map = spec.windows[dim];
    const tenon::ElementRange outputs{out.offset[dim], out.end(dim)};
    begin.push_back(outputs.size() == 0 || map == nullptr ? outputs.begin : map->inputs(outputs).begin);
  }
  each_element({Shape(std::span<const std::int64_t>(std::vector<std::int64_t>(begin.size(), 0))), local},
               [&](const std::vector<std::int64_t>& at, std::int64_t position) {
                 std::vector<std::int64_t> global = at;
                 bool inside = true, mine = true;
                 for (std::size_t d = 0; d < at.size(); ++d) {
                   const auto dim = static_cast<int>(d);
                   global[d] += begin[d];
                   inside &= global[d] >= 0 && global[d] < spec.from.shape[dim];
                   mine &= global[d] >= own.offset[dim] && global[d] < own.end(dim);
                 }
                 if (!inside) return;
                 values[position] = small_integer(stream, flat_index(global, spec.from.shape));
                 received += mine ? 0 : 1;
               });
  return values;
}

/// The result of `rank` after the move of the tensor that `held` distributes.
inline std::vector<double> moved(const MoveSpec& spec, const std::vector<int>& mesh, int rank,
                                 const Shape& local, std::uint64_t stream) {
  std::int64_t received = 0;
  if (!spec.windows.empty()) return window_of(spec, mesh, rank, local, stream, received);
  std::vector<double> values(local.elements());
  const auto place = tenon::mesh_coordinates(rank, mesh);
  each_element(part(spec.to, mesh, rank), [&](const auto& index, std::int64_t position) {
    values[position] =
        total(spec.from, mesh, stream, flat_index(index, spec.to.shape), spec.to.partial, place);
  });
  return values;
}

/// P2: forward is the tensor in its new place.
inline void expect_moved(const OnMesh& on, const Trial& trial) {
  Draw draw = trial.draw();
  for (int g = 0; g < trial.meshes; ++g) {
    const std::vector<int> mesh = draw.mesh(trial.ranks);
    const std::vector<MoveSpec> moves = trial.moves_on(mesh, draw);
    on(mesh, [&](Mesh& at) {
      std::uint64_t stream = 0;
      for (const MoveSpec& spec : moves) {
        stream += 1000;
        const auto map = make_map(at, trial.name, spec, "test");
        auto x = held(spec.from, mesh, at.index(), stream);
        std::vector<double> y(map->local_range().elements(), 99.0);
        map->forward(view_of(x, map->local_domain()), view_of(y, map->local_range()));
        EXPECT_EQ(y, moved(spec, mesh, at.index(), map->local_range(), stream)) << text_of(spec);
      }
    });
  }
}

/// P1: there and back, by the opposite move and by the adjoint, over layouts with one owner per element.
inline void expect_there_and_back(const OnMesh& on, int ranks, int meshes) {
  Draw draw(static_cast<unsigned>(ranks));
  // Values that a sum or a conversion would change: signed zeros, infinities, NaN with a payload.
  const auto held_bits = [](const Layout& layout, const std::vector<int>& mesh, int rank) {
    constexpr std::uint64_t kOdd[] = {0x8000000000000000u, 0, 0x7ff0000000000000u, 0x7ff8dead00000001u, 1};
    const Box box = part(layout, mesh, rank);
    std::vector<std::uint64_t> bits(box.elements());
    each_element(box, [&](const auto& at, std::int64_t position) {
      const std::int64_t element = flat_index(at, layout.shape);
      bits[position] = element % 3 == 0 ? kOdd[static_cast<std::size_t>(element) % 5]
                                        : static_cast<std::uint64_t>(element) * 0x9e3779b97f4a7c15u;
    });
    return bits;
  };
  for (int g = 0; g < meshes; ++g) {
    const std::vector<int> mesh = draw.mesh(ranks);
    struct Pair {
      const char *forth, *back;
      Layout p, q;
    };
    std::vector<Pair> pairs;
    for (int i = 0; i < 15; ++i) {
      const Shape shape = draw.shape(1, 4, 8);
      const Layout p = draw.layout(shape, mesh, false, false), q = draw.layout(shape, mesh, false, false);
      pairs.push_back({"repartition", "repartition", p, q});
      if (i % 3 == 0) pairs.push_back({"all_to_all", "all_to_all", p, q});
      if (i % 3 == 1) pairs.push_back({"scatter", "gather", owned(shape, mesh, draw.small(0, ranks - 1)), q});
      if (i % 3 == 2) pairs.push_back({"gather", "scatter", p, owned(shape, mesh, draw.small(0, ranks - 1))});
    }
    on(mesh, [&](Mesh& at) {
      for (const Pair& pair : pairs) {
        const MoveSpec forth{.from = pair.p, .to = pair.q, .dtype = DType::kF64};
        const MoveSpec back{.from = pair.q, .to = pair.p, .dtype = DType::kF64};
        const auto there = make_map(at, pair.forth, forth, "test");
        const auto returned = make_map(at, pair.back, back, "test");
        auto x = held_bits(pair.p, mesh, at.index());
        const auto wanted = held_bits(pair.q, mesh, at.index());
        std::vector<std::uint64_t> y(wanted.size()), again(x.size()), adjoint(x.size());
        const auto view = [](std::vector<std::uint64_t>& bits, const Shape& shape) {
          return tenon::TensorView{bits.data(), shape, DType::kF64};
        };
        there->forward(view(x, there->local_domain()), view(y, there->local_range()));
        EXPECT_EQ(y, wanted);
        returned->forward(view(y, there->local_range()), view(again, there->local_domain()));
        there->adjoint(view(y, there->local_range()), view(adjoint, there->local_domain()));
        EXPECT_EQ(again, x);
        EXPECT_EQ(adjoint, x) << "T* is the inverse where every element has one owner";
      }
    });
  }
}

}  // namespace model_parallel
