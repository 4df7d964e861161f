// Property P2: adjoints of random moves against inner products and against the transposed matrix.
#pragma once

#include "trials.hpp"

#include <numeric>

namespace model_parallel {

/// Exact, on integers; `width` numbers to an element, whose inner product is that of the pairs of reals.
template <typename T>
void expect_adjoint(Mesh& at, const Trial& trial, MoveSpec spec, DType dtype, int width) {
  spec.dtype = dtype;
  const auto map = make_map(at, trial.name, spec, "test");
  const Shape domain = map->local_domain(), range = map->local_range();
  const auto rank = static_cast<std::uint64_t>(at.index());
  const auto noises = [&](const Shape& shape, std::uint64_t stream) {
    return noise<T>(width * shape.elements(), stream);
  };
  const auto view = [&](std::vector<T>& values, const Shape& shape) {
    return tenon::TensorView{values.data(), shape, dtype};
  };
  auto x = noises(domain, 100 * rank), dy = noises(range, 7000 + 100 * rank);
  // Adds to old values, so that assignments cannot hide.
  auto y = noises(range, 31), dx = noises(domain, 32);
  const auto y0 = y, dx0 = dx;
  map->forward(view(x, domain), view(y, range), true);
  map->adjoint(view(dy, range), view(dx, domain), true);
  for (std::size_t e = 0; e < y.size(); ++e) y[e] -= y0[e];
  for (std::size_t e = 0; e < dx.size(); ++e) dx[e] -= dx0[e];
  const std::vector<double> products = sums_over(at, {dot(y, dy), dot(x, dx)});
  EXPECT_EQ(products[0], products[1]) << text_of(spec);
  auto again = noises(range, 33);
  map->forward(view(x, domain), view(again, range));
  EXPECT_EQ(again, y) << "an assignment and a sum differ: " << text_of(spec);
}

/// P2: <F x, dy> = <x, F* dy> in all types.
inline void expect_adjoints(const OnMesh& on, const Trial& trial) {
  Draw draw = trial.draw();
  for (int g = 0; g < trial.meshes; ++g) {
    const std::vector<int> mesh = draw.mesh(trial.ranks);
    const std::vector<MoveSpec> moves = trial.moves_on(mesh, draw);
    on(mesh, [&](Mesh& at) {
      for (std::size_t i = 0; i < moves.size(); ++i) {
        if (i % 4 == 0) expect_adjoint<double>(at, trial, moves[i], DType::kF64, 1);
        if (i % 4 == 1) expect_adjoint<float>(at, trial, moves[i], DType::kF32, 1);
        if (i % 4 == 2) expect_adjoint<double>(at, trial, moves[i], DType::kC128, 2);
        if (i % 4 == 3) expect_adjoint<float>(at, trial, moves[i], DType::kC64, 2);
      }
    });
  }
}

/// P2: the matrix of the adjoint, column by column, is the transposed matrix of the map. Small moves alone.
inline void expect_transposed_matrices(const OnMesh& on, const Trial& trial) {
  constexpr std::int64_t kMost = 24;
  Draw draw = trial.draw();
  for (int g = 0; g < trial.meshes; ++g) {
    const std::vector<int> mesh = draw.mesh(trial.ranks);
    std::vector<MoveSpec> moves = trial.moves_on(mesh, draw);
    std::erase_if(moves, [&](const MoveSpec& spec) {
      std::int64_t elements = 0;
      for (int r = 0; r < trial.ranks; ++r)
        elements = std::max(elements, part(spec.from, mesh, r).elements());
      return elements > kMost / trial.ranks + 1 || spec.to.shape.elements() > kMost;
    });
    on(mesh, [&](Mesh& at) {
      for (const MoveSpec& spec : moves) {
        const auto map = make_map(at, trial.name, spec, "test");
        const std::size_t self = at.index();
        // Offset of this rank's elements in the vectors of all ranks, and their total length.
        const auto place = [&](const Shape& local) {
          std::vector<double> sizes(at.size(), 0);
          sizes[self] = static_cast<double>(local.elements());
          sizes = sums_over(at, sizes);
          const auto own = sizes.begin() + static_cast<std::ptrdiff_t>(self);
          return std::pair{static_cast<std::size_t>(std::accumulate(sizes.begin(), own, 0.0)),
                           static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), 0.0))};
        };
        const auto columns = place(map->local_domain()), rows = place(map->local_range());
        std::vector<double> matrix(rows.second * columns.second, 0), of_adjoint = matrix;
        std::vector<double> x(map->local_domain().elements()),
            y(static_cast<std::size_t>(map->local_range().elements()));
        const tenon::TensorView in = view_of(x, map->local_domain()), out = view_of(y, map->local_range());
        const auto unit = [](std::vector<double>& mine, std::size_t first, std::size_t element) {
          std::fill(mine.begin(), mine.end(), 0.0);
          if (element >= first && element < first + mine.size()) mine[element - first] = 1;
        };
        for (std::size_t column = 0; column < columns.second; ++column) {
          unit(x, columns.first, column);
          map->forward(in, out);
          for (std::size_t r = 0; r < y.size(); ++r)
            matrix[(rows.first + r) * columns.second + column] = y[r];
        }
        for (std::size_t row = 0; row < rows.second; ++row) {
          unit(y, rows.first, row);
          map->adjoint(out, in);
          for (std::size_t c = 0; c < x.size(); ++c)
            of_adjoint[row * columns.second + columns.first + c] = x[c];
        }
        EXPECT_EQ(sums_over(at, matrix), sums_over(at, of_adjoint)) << text_of(spec);
      }
    });
  }
}

}  // namespace model_parallel
