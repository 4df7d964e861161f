// Property P15: several maps, uses and flights at a time.
#pragma once

#include "trials.hpp"

#include <numeric>

namespace model_parallel {

/// P15: maps of these primitives (a random one each) are used three times, all forwards and adjoints in
/// flight together, and finished in another order than they were started in.
inline void expect_several_in_flight(const OnMesh& on, const std::vector<std::string_view>& names, int ranks,
                                     Draw draw) {
  const std::vector<int> mesh = draw.mesh(ranks);
  std::vector<MoveSpec> moves;
  for (const std::string_view name : names) {
    moves.push_back(*random_move(name, mesh, draw));
    moves.back().dtype = DType::kF64, moves.back().flights = 2;
  }
  std::vector<std::size_t> ends(2 * names.size());  // a map's forward, and its adjoint
  std::iota(ends.begin(), ends.end(), 0);
  draw.shuffle(ends);
  on(mesh, [&](Mesh& at) {
    std::vector<std::unique_ptr<LinearMap>> maps;
    for (std::size_t i = 0; i < names.size(); ++i) maps.push_back(make_map(at, names[i], moves[i], "test"));
    for (int use = 0; use < 3; ++use) {
      struct Run {
        std::vector<double> x, y, dy, dx;
        tenon::Flight forth, back;
      };
      std::vector<Run> runs;
      for (std::size_t i = 0; i < maps.size(); ++i) {
        const auto stream = static_cast<std::uint64_t>(100 * use + 10 * at.index()) + i;
        const Shape domain = maps[i]->local_domain(), range = maps[i]->local_range();
        runs.push_back(
            {noise(domain, stream), noise(range, 1), noise(range, stream + 5000), noise(domain, 2), {}, {}});
      }
      for (std::size_t i = 0; i < maps.size(); ++i) {
        Run& run = runs[i];
        const Shape domain = maps[i]->local_domain(), range = maps[i]->local_range();
        run.forth = maps[i]->start_forward(view_of(run.x, domain), view_of(run.y, range), false);
        run.back = maps[i]->start_adjoint(view_of(run.dy, range), view_of(run.dx, domain), false);
        EXPECT_THROW(maps[i]->start_forward(view_of(run.x, domain), view_of(run.y, range), false),
                     tenon::Error);
      }
      for (const std::size_t end : ends) {
        const Run& run = runs[end / 2];
        maps[end / 2]->finish(end % 2 == 0 ? run.forth : run.back);
      }
      std::vector<double> products;
      for (const Run& run : runs) products.insert(products.end(), {dot(run.y, run.dy), dot(run.x, run.dx)});
      products = sums_over(at, products);
      for (std::size_t i = 0; i < products.size(); i += 2) EXPECT_EQ(products[i], products[i + 1]);
    }
  });
}

/// P15: broadcasts and sums from and to random ranks, over parts that overlap.
inline void expect_pairs_in_flight(const OnMesh& on, int ranks, int worlds) {
  Draw draw(1500 + static_cast<unsigned>(ranks));
  for (int w = 0; w < worlds; ++w) {
    std::vector<std::string_view> names;
    for (int i = 0; i < 8; ++i) names.push_back(draw.coin() ? "broadcast" : "sum_reduce");
    expect_several_in_flight(on, names, ranks, Draw(static_cast<unsigned>(draw.integer(0, 1 << 20))));
  }
}

}  // namespace model_parallel
