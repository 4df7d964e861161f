// Property P6 of nested halo exchanges: the windows and adjoints of the general ones, two messages for each
// sharded dimension, and the bytes of the closed form.
#include "movement.hpp"

#include <numeric>

namespace model_parallel::nested_halo_test {
namespace {

using tenon::Direction;
using tenon::testing::MeshRanks;

/// Sections 3.3: over the sharded dimensions, the halo's width times the rank's extents in those already
/// exchanged, ghosts included, times its own part of those to come. `literal`: as written there, where inputs
/// that the rank has and does not need are still sent.
std::int64_t received(const MoveSpec& spec, const std::vector<int>& mesh, int rank, bool literal) {
  const Box own = part(spec.from, mesh, rank), out = part(spec.to, mesh, rank);
  std::vector<std::int64_t> width, ahead, behind;
  for (int dim = 0; dim < own.offset.rank(); ++dim) {
    const tenon::ElementRange mine{own.offset[dim], own.end(dim)};
    const tenon::DimWindow at =
        dim_window(spec.windows[dim].get(), mine, {out.offset[dim], out.end(dim)}, spec.from.shape[dim]);
    const std::int64_t shared =
        std::max<std::int64_t>(0, std::min(mine.end, at.need.end) - std::max(mine.begin, at.need.begin));
    const std::int64_t low = std::max<std::int64_t>(0, at.halo_low),
                       high = std::max<std::int64_t>(0, at.halo_high);
    const auto sharding = std::find_if(spec.from.sharding.begin(), spec.from.sharding.end(),
                                       [&](const DimSharding& one) { return one.dim == dim; });
    const bool is_sharded = sharding != spec.from.sharding.end() && sharding->offsets.size() > 2;
    width.push_back(literal ? low + high : at.need.size() - shared);
    ahead.push_back(literal || is_sharded ? mine.size() : at.need.size());
    behind.push_back(literal ? mine.size() + low + high : at.need.size());
  }
  std::int64_t elements = 0;
  for (std::size_t step = 0; step < width.size(); ++step) {
    std::int64_t message = width[step];
    for (std::size_t dim = 0; dim < width.size(); ++dim)
      if (dim != step) message *= dim < step ? behind[dim] : ahead[dim];
    elements += message;
  }
  return elements;
}

class NestedHalo : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, NestedHalo, ::testing::Range(1, 9));

TEST_P(NestedHalo, P6_HasTheWindowsOfTheGeneralOneAndTheBytesOfTheFormula) {
  Draw draw(30 + static_cast<unsigned>(GetParam()));
  int exact = 0;
  for (int g = 0; g < 8; ++g) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    std::vector<MoveSpec> moves;
    for (int i = 0; i < 20; ++i) {
      moves.push_back(random_nested_windows(mesh, draw));
      moves.back().dtype = DType::kF64;
      std::int64_t formula = 0, sheet = 0;
      for (int r = 0; r < GetParam(); ++r) {
        formula += received(moves.back(), mesh, r, false), sheet += received(moves.back(), mesh, r, true);
      }
      EXPECT_LE(formula, sheet) << text_of(moves.back());
      exact += formula == sheet && formula > 0 ? 1 : 0;
    }
    on_threads(mesh, [&](Mesh& at) {
      for (const MoveSpec& spec : moves) {
        const auto nested = make_map(at, "halo_exchange_nested", spec, "test"),
                   general = make_map(at, "halo_exchange", spec, "test");
        const Shape domain = nested->local_domain(), range = nested->local_range();
        ASSERT_EQ(range, general->local_range());
        const auto rank = static_cast<std::uint64_t>(at.index());
        auto x = noise(domain, rank), y = noise(range, 1), dy = noise(range, 50 + rank),
             dx = noise(domain, 2);
        auto same_y = y, same_dx = dx;
        const auto messages = at.all() == nullptr ? 0 : at.all()->counts().messages_sent;
        nested->forward(view_of(x, domain), view_of(y, range));
        if (at.all() != nullptr) {
          EXPECT_LE(at.all()->counts().messages_sent - messages, 2 * sharded_axes(spec.from).size())
              << text_of(spec);
        }
        nested->adjoint(view_of(dy, range), view_of(dx, domain), true);
        general->forward(view_of(x, domain), view_of(same_y, range));
        general->adjoint(view_of(dy, range), view_of(same_dx, domain), true);
        EXPECT_EQ(y, same_y) << text_of(spec);
        EXPECT_EQ(dx, same_dx) << text_of(spec);
        EXPECT_EQ(nested->bytes_sent(Direction::kTranspose), 8 * received(spec, mesh, at.index(), false))
            << text_of(spec);
        EXPECT_EQ(sum_over(at, static_cast<double>(nested->bytes_sent(Direction::kForward))),
                  sum_over(at, static_cast<double>(nested->bytes_sent(Direction::kTranspose))));
      }
    });
  }
  if (GetParam() > 1) {
    EXPECT_GT(exact, 20) << "cases in which no input is left over";
  }
}

/// The spec of a kernel over a tensor in even parts.
MoveSpec even(const Shape& inputs, const std::vector<int>& mesh, const tenon::Sliding& window) {
  MoveSpec spec{.from = {inputs}, .to = {inputs}, .dtype = DType::kF64};
  for (int dim = 0; dim < inputs.rank(); ++dim) {
    const int parts = mesh[dim];
    spec.to.shape[dim] = window.outputs(inputs[dim]);
    spec.from.sharding.push_back({dim, {dim}, tenon::balanced_offsets(inputs[dim], parts)});
    spec.to.sharding.push_back({dim, {dim}, tenon::balanced_offsets(spec.to.shape[dim], parts)});
    spec.windows.push_back(tenon::sliding_map(window));
  }
  return spec;
}

TEST(NestedHalo, P6_SendsTwoMessagesPerDimensionNotOneToEveryNeighbour) {
  struct Case {
    std::vector<int> mesh;
    std::size_t rank;
    std::uint64_t nested, general;
  };
  for (const Case& one : {Case{{3, 3}, 4, 4, 8}, Case{{2, 2, 2}, 0, 3, 7}, Case{{4}, 1, 2, 2}}) {
    std::vector<std::int64_t> extents(one.mesh.size(), 12);
    const MoveSpec spec = even(Shape(std::span<const std::int64_t>(extents)), one.mesh, {3, 1, 1, 1, 1});
    for (const auto& [name, expected] :
         {std::pair{"halo_exchange_nested", one.nested}, {"halo_exchange", one.general}}) {
      std::vector<std::uint64_t> sent(ranks_of(one.mesh));
      on_threads(one.mesh, [&, name = name](Mesh& at) {
        const auto map = make_map(at, name, spec, "test");
        std::vector<double> x(map->local_domain().elements()),
            y(static_cast<std::size_t>(map->local_range().elements()));
        const auto before = at.all()->counts().messages_sent;
        map->forward(view_of(x, map->local_domain()), view_of(y, map->local_range()));
        sent[at.index()] = at.all()->counts().messages_sent - before;
      });
      EXPECT_EQ(sent[one.rank], expected) << name << " on " << one.mesh.size() << " axes";
    }
  }
}

// The second pool of LeNet-5 on 2 x 2 ranks: 19 elements per channel by the general form, and 20 by this one,
// which omits the row that no rank needs.
TEST(NestedHalo, P6_PoolOfLeNet) {
  const std::vector<int> mesh{2, 2};
  const MoveSpec spec = even(Shape{10, 10}, mesh, {2, 2, 1, 0, 0});
  on_threads(mesh, [&](Mesh& at) {
    for (const auto& [name, elements] : {std::pair{"halo_exchange_nested", 20}, {"halo_exchange", 19}}) {
      const auto map = make_map(at, name, spec, "test");
      EXPECT_EQ(sum_over(at, static_cast<double>(map->bytes_sent(Direction::kForward))), 8 * elements)
          << name;
    }
  });
}

}  // namespace
}  // namespace model_parallel::nested_halo_test
