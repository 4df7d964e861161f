// Properties P2, P7 and P15 of every registered primitive: what it moves, that its adjoint is the transpose,
// whatever ranks are called and whenever messages come.
#include "moves.hpp"

#include <tenon/communicator_decorator.hpp>
#include <tenon/testing/grid_ranks.hpp>

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

namespace model_parallel {
namespace {

using tenon::LinearMap;
using tenon::testing::GridRanks;

struct PrimitiveCase {
  std::string_view name;
  int ranks;
};
void PrintTo(const PrimitiveCase& one, std::ostream* out) {
  *out << one.name << " on " << one.ranks;
}

std::vector<PrimitiveCase> all_cases() {
  std::vector<PrimitiveCase> cases;
  for (const tenon::Primitive& primitive : tenon::primitives())
    for (int ranks = 1; ranks <= 8; ++ranks) cases.push_back({primitive.name, ranks});
  return cases;
}

class Primitives : public ::testing::TestWithParam<PrimitiveCase> {
 protected:
  std::string_view name() const { return GetParam().name; }
  /// Seeded by name and ranks, so that a case can be run again alone.
  Draw draw() const {
    return Draw(static_cast<unsigned>(std::hash<std::string_view>{}(name()) ^
                                      static_cast<unsigned>(GetParam().ranks)));
  }
};

INSTANTIATE_TEST_SUITE_P(All, Primitives, ::testing::ValuesIn(all_cases()), [](const auto& entry) {
  return std::string(entry.param.name) + std::to_string(entry.param.ranks);
});

/// Layout of the gradient of a tensor that has this one: copies become terms of a sum, and a sum copies.
Layout dual(const Layout& layout, const std::vector<int>& grid) {
  Layout out = layout;
  out.partial.clear();
  std::vector<bool> used(grid.size(), false);
  for (const DimSharding& cut : layout.sharding)
    for (const int axis : cut.axes) used[static_cast<std::size_t>(axis)] = true;
  for (const int axis : layout.partial) used[static_cast<std::size_t>(axis)] = true;
  for (std::size_t axis = 0; axis < grid.size(); ++axis)
    if (!used[axis]) out.partial.push_back(static_cast<int>(axis));
  return out;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<double> noise(const Shape& shape, std::uint64_t stream) {
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = small_integer(stream, static_cast<std::int64_t>(i));
  return values;
}

double sum_over(ModelGrid& grid, double value) {
  if (grid.all() != nullptr)
    grid.all()->all_reduce({&value, Shape{1}, tenon::DType::kF64}, tenon::ReduceOp::kSum);
  return value;
}

TEST_P(Primitives, P2_AdjointIsTheTransposeExactly) {
  Draw draw = this->draw();
  for (int round = 0; round < 6; ++round) {
    const std::vector<int> grid = draw.grid(GetParam().ranks);
    std::vector<MoveSpec> moves;
    for (int i = 0; i < 12; ++i) {
      const auto move = random_move(name(), grid, draw);
      ASSERT_TRUE(move) << "primitive '" << name() << "' has no random moves in moves.hpp";
      moves.push_back(*move);
      moves.back().dtype = tenon::DType::kF64;
    }
    GridRanks world(grid);
    const auto errors = world.run([&](ModelGrid& at) {
      for (std::size_t i = 0; i < moves.size(); ++i) {
        const auto map = make_map(at, name(), moves[i], "test");
        const auto rank = static_cast<std::uint64_t>(at.index());
        auto x = noise(map->local_domain(), 100 * rank + i),
             dy = noise(map->local_range(), 7000 + 100 * rank + i);
        // Adding to what is there, so that assignments cannot hide.
        auto y = noise(map->local_range(), 31), dx = noise(map->local_domain(), 32);
        const auto y0 = y, dx0 = dx;
        map->forward(view_of(x, map->local_domain()), view_of(y, map->local_range()), true);
        map->adjoint(view_of(dy, map->local_range()), view_of(dx, map->local_domain()), true);
        for (std::size_t e = 0; e < y.size(); ++e) y[e] -= y0[e];
        for (std::size_t e = 0; e < dx.size(); ++e) dx[e] -= dx0[e];
        const double forward = sum_over(at, dot(y, dy)), back = sum_over(at, dot(x, dx));
        EXPECT_EQ(forward, back) << layout_text(moves[i].from) << " to " << layout_text(moves[i].to);
        auto again = noise(map->local_range(), 33);
        map->forward(view_of(x, map->local_domain()), view_of(again, map->local_range()));
        EXPECT_EQ(again, y) << "an assignment and a sum differ";
      }
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

TEST_P(Primitives, P2_ForwardIsTheTensorInItsNewPlace) {
  if (name() == "halo_exchange") GTEST_SUCCEED() << "halo_test.cpp compares windows";
  Draw draw = this->draw();
  for (int round = 0; round < 6 && name() != "halo_exchange"; ++round) {
    const std::vector<int> grid = draw.grid(GetParam().ranks);
    std::vector<MoveSpec> moves;
    for (int i = 0; i < 12; ++i) moves.push_back(*random_move(name(), grid, draw));
    GridRanks world(grid);
    const auto errors = world.run([&](ModelGrid& at) {
      for (std::uint64_t i = 0; i < moves.size(); ++i) {
        MoveSpec spec = moves[i];
        spec.dtype = tenon::DType::kF64;
        const auto map = make_map(at, name(), spec, "test");
        auto x = held(spec.from, grid, at.index(), 1000 * i);
        std::vector<double> y(static_cast<std::size_t>(map->local_range().elements()), 99.0);
        map->forward(view_of(x, map->local_domain()), view_of(y, map->local_range()));
        const auto place = tenon::grid_coordinates(at.index(), grid);
        each_element(part(spec.to, grid, at.index()), [&](const auto& index, std::int64_t position) {
          const double expected =
              total(spec.from, grid, 1000 * i, flat_index(index, spec.to.shape), spec.to.partial, place);
          EXPECT_EQ(y[static_cast<std::size_t>(position)], expected);
        });
      }
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

TEST_P(Primitives, P2_AdjointIsThePrimitiveThatItNames) {
  Draw draw = this->draw();
  const std::string_view other = tenon::primitive(name()).adjoint;
  for (int round = 0; round < 4; ++round) {
    const std::vector<int> grid = draw.grid(GetParam().ranks);
    const MoveSpec spec = *random_move(name(), grid, draw);
    MoveSpec back = spec;
    back.from = dual(spec.to, grid), back.to = dual(spec.from, grid);
    back.dtype = tenon::DType::kF64;
    // Copies on both sides (a repartition) come back as sums, and windows overlap: no primitive by itself.
    if (!back.to.partial.empty() || !spec.windows.empty()) continue;
    if (!tenon::primitive(other).refusal(back, grid).empty()) {
      EXPECT_EQ(name(), "repartition") << tenon::primitive(other).refusal(back, grid) << ": "
                                       << layout_text(back.from) << " to " << layout_text(back.to);
      continue;
    }
    GridRanks world(grid);
    const auto errors = world.run([&](ModelGrid& at) {
      MoveSpec forth = spec;
      forth.dtype = tenon::DType::kF64;
      const auto map = make_map(at, name(), forth, "test"), named = make_map(at, other, back, "test");
      auto dy = noise(map->local_range(), static_cast<std::uint64_t>(at.index()));
      std::vector<double> dx(static_cast<std::size_t>(map->local_domain().elements()), 1.0),
          same(dx.size(), 2.0);
      map->adjoint(view_of(dy, map->local_range()), view_of(dx, map->local_domain()));
      named->forward(view_of(dy, map->local_range()), view_of(same, map->local_domain()));
      EXPECT_EQ(dx, same);
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

/// Sleeps before it sends, a different time on every rank and operation.
class Late final : public tenon::CommunicatorDecorator {
 public:
  Late(std::unique_ptr<tenon::Communicator> inner, unsigned seed)
      : CommunicatorDecorator(std::move(inner)), draw_(seed) {}
  tenon::Request start_send(tenon::TensorView data, int to, int tag) override {
    std::this_thread::sleep_for(std::chrono::microseconds(draw_.integer(0, 300)));
    return inner_->start_send(data, to, tag);
  }

 private:
  Draw draw_;
};

TEST_P(Primitives, P7_BitsDoNotDependOnNumbersOfRanksOrOnWhenMessagesCome) {
  Draw draw = this->draw();
  for (int round = 0; round < 3; ++round) {
    const std::vector<int> grid = draw.grid(GetParam().ranks);
    MoveSpec spec = *random_move(name(), grid, draw);
    spec.dtype = tenon::DType::kF32;
    std::vector<int> shuffled(static_cast<std::size_t>(GetParam().ranks));
    std::iota(shuffled.begin(), shuffled.end(), 0);
    draw.shuffle(shuffled);
    const auto result = [&](const std::vector<int>& world_ranks, unsigned delays) {
      std::vector<std::vector<float>> all(2 * shuffled.size());
      GridRanks world(grid, world_ranks);
      const auto errors = world.run(
          [&](ModelGrid& at) {
            const auto map = make_map(at, name(), spec, "test");
            const auto fractions = [&](const Shape& shape, std::uint64_t stream) {
              std::vector<float> values;
              for (const double x : noise(shape, stream)) values.push_back(static_cast<float>(x / 7 + 0.1));
              return values;
            };
            const auto rank = static_cast<std::size_t>(at.index());
            auto x = fractions(map->local_domain(), rank), dy = fractions(map->local_range(), 50 + rank);
            std::vector<float>&y = all[2 * rank], &dx = all[2 * rank + 1];
            y.resize(dy.size()), dx.resize(x.size());
            map->forward({x.data(), map->local_domain(), spec.dtype}, {y.data(), map->local_range(), spec.dtype});
            map->adjoint({dy.data(), map->local_range(), spec.dtype}, {dx.data(), map->local_domain(), spec.dtype});
          },
          delays == 0 ? GridRanks::Wrap{} : [delays](std::unique_ptr<tenon::Communicator> inner, int rank) {
            return std::unique_ptr<tenon::Communicator>(
                std::make_unique<Late>(std::move(inner), delays + static_cast<unsigned>(rank)));
          });
      EXPECT_EQ(errors, no_errors(world.size()));
      return all;
    };
    const auto plain = result({}, 0);
    EXPECT_EQ(plain, result({}, 11));
    EXPECT_EQ(plain, result(shuffled, 12));
  }
}

TEST_P(Primitives, P15_SeveralMapsAndFlightsAtATime) {
  Draw draw = this->draw();
  const std::vector<int> grid = draw.grid(GetParam().ranks);
  std::vector<MoveSpec> moves;
  for (int i = 0; i < 3; ++i) {
    moves.push_back(*random_move(name(), grid, draw));
    moves.back().dtype = tenon::DType::kF64, moves.back().flights = 2;
  }
  GridRanks world(grid);
  const auto errors = world.run([&](ModelGrid& at) {
    std::vector<std::unique_ptr<LinearMap>> maps;
    for (const MoveSpec& move : moves) maps.push_back(make_map(at, name(), move, "test"));
    for (int use = 0; use < 3; ++use) {
      struct Run {
        std::vector<double> x, y, dy, dx;
        tenon::Flight forth, back;
      };
      std::vector<Run> runs;
      for (std::size_t i = 0; i < maps.size(); ++i) {
        const auto stream = static_cast<std::uint64_t>(100 * use + 10 * at.index()) + i;
        runs.push_back({noise(maps[i]->local_domain(), stream),
                        noise(maps[i]->local_range(), 1),
                        noise(maps[i]->local_range(), stream + 5000),
                        noise(maps[i]->local_domain(), 2),
                        {},
                        {}});
      }
      for (std::size_t i = 0; i < maps.size(); ++i) {
        const Shape domain = maps[i]->local_domain(), range = maps[i]->local_range();
        runs[i].forth = maps[i]->start_forward(view_of(runs[i].x, domain), view_of(runs[i].y, range), false);
        runs[i].back = maps[i]->start_adjoint(view_of(runs[i].dy, range), view_of(runs[i].dx, domain), false);
        EXPECT_THROW(maps[i]->start_forward(view_of(runs[i].x, domain), view_of(runs[i].y, range), false),
                     tenon::Error);
      }
      for (std::size_t i = maps.size(); i-- > 0;) {
        maps[i]->finish(runs[i].back);
        maps[i]->finish(runs[i].forth);
        EXPECT_EQ(sum_over(at, dot(runs[i].y, runs[i].dy)), sum_over(at, dot(runs[i].x, runs[i].dx)));
      }
    }
  });
  EXPECT_EQ(errors, no_errors(world.size()));
}

TEST(PrimitiveList, NamesAreUniqueAndAdjointsAreOnTheList) {
  std::vector<std::string_view> names;
  for (const tenon::Primitive& one : tenon::primitives()) names.push_back(one.name);
  for (const tenon::Primitive& one : tenon::primitives()) {
    EXPECT_EQ(std::count(names.begin(), names.end(), one.name), 1) << one.name;
    EXPECT_EQ(tenon::primitive(one.adjoint).adjoint, one.name) << "the adjoint of the adjoint";
  }
  try {
    tenon::primitive("scater");
    FAIL();
  } catch (const tenon::Error& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("there is no primitive 'scater'; there are send_receive, scatter"));
  }
}

}  // namespace
}  // namespace model_parallel
