// Properties P2, P7 and P15 of every registered primitive: its movement, that its adjoint is the transpose,
// for any numbering of ranks, any idle ranks, and any arrival times of messages.
#include "adjoints.hpp"
#include "flights.hpp"
#include "movement.hpp"

#include <tenon/transport.hpp>

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

namespace model_parallel::primitives_test {
namespace {

using tenon::testing::MeshRanks;

std::vector<Trial> all_trials() {
  std::vector<Trial> trials;
  for (const tenon::Primitive& primitive : tenon::primitives())
    for (int ranks = 1; ranks <= 8; ++ranks) trials.push_back({primitive.name, ranks});
  return trials;
}

class Primitives : public ::testing::TestWithParam<Trial> {
 protected:
  std::string_view name() const { return GetParam().name; }
  Draw draw() const { return GetParam().draw(); }
};

INSTANTIATE_TEST_SUITE_P(All, Primitives, ::testing::ValuesIn(all_trials()), [](const auto& entry) {
  return std::string(entry.param.name) + std::to_string(entry.param.ranks);
});

/// Layout of the gradient of a tensor that has this one: copies become terms of a partial sum, and a partial
/// sum copies.
Layout dual(const Layout& layout, const std::vector<int>& mesh) {
  Layout out = layout;
  out.partial.clear();
  std::vector<bool> used(mesh.size(), false);
  for (const DimSharding& sharding : layout.sharding)
    for (const int axis : sharding.axes) used[axis] = true;
  for (const int axis : layout.partial) used[axis] = true;
  for (std::size_t axis = 0; axis < mesh.size(); ++axis)
    if (!used[axis]) out.partial.push_back(static_cast<int>(axis));
  return out;
}

TEST_P(Primitives, P2_AdjointIsTheTransposeExactly) {
  expect_adjoints(on_threads, GetParam());
}

TEST_P(Primitives, P2_AdjointHasTheTransposedMatrix) {
  Trial trial = GetParam();
  trial.meshes = 2, trial.moves = 4;
  if (trial.ranks <= 4) expect_transposed_matrices(on_threads, trial);
}

TEST_P(Primitives, P2_ForwardIsTheTensorInItsNewPlace) {
  expect_moved(on_threads, GetParam());
}

TEST_P(Primitives, P2_AdjointIsThePrimitiveThatItNames) {
  Draw draw = this->draw();
  const std::string_view other = tenon::primitive(name()).adjoint;
  for (int round = 0; round < 4; ++round) {
    const std::vector<int> mesh = draw.mesh(GetParam().ranks);
    const MoveSpec spec = *random_move(name(), mesh, draw);
    MoveSpec back = spec;
    back.from = dual(spec.to, mesh), back.to = dual(spec.from, mesh);
    back.dtype = tenon::DType::kF64;
    // Copies on both sides (a repartition) return as partial sums, and windows overlap: no single primitive.
    if (!back.to.partial.empty() || !spec.windows.empty()) continue;
    if (!tenon::primitive(other).refusal(back, mesh).empty()) {
      EXPECT_EQ(name(), "repartition") << tenon::primitive(other).refusal(back, mesh) << ": "
                                       << layout_text(back.from) << " to " << layout_text(back.to);
      continue;
    }
    on_threads(mesh, [&](Mesh& at) {
      MoveSpec forth = spec;
      forth.dtype = tenon::DType::kF64;
      const auto map = make_map(at, name(), forth, "test"), named = make_map(at, other, back, "test");
      auto dy = noise(map->local_range(), static_cast<std::uint64_t>(at.index()));
      std::vector<double> dx(map->local_domain().elements(), 1.0), same(dx.size(), 2.0);
      map->adjoint(view_of(dy, map->local_range()), view_of(dx, map->local_domain()));
      named->forward(view_of(dy, map->local_range()), view_of(same, map->local_domain()));
      EXPECT_EQ(dx, same);
    });
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

/// Results of a map on fractions, forward and adjoint, by mesh index.
struct Bits {
  std::vector<std::vector<float>> y, dx;
  bool operator==(const Bits&) const = default;
};

/// `streams`: seeds of each rank's fractions.
Bits bits_on(MeshRanks& world, std::string_view name, const MoveSpec& spec,
             const std::vector<std::uint64_t>& streams, const MeshRanks::Wrap& wrap = {}) {
  const std::size_t ranks = world.size();
  Bits bits{std::vector<std::vector<float>>(ranks), std::vector<std::vector<float>>(ranks)};
  const auto errors = world.run(
      [&](Mesh& at) {
        const auto map = make_map(at, name, spec, "test");
        const std::size_t rank = at.index();
        const auto fractions = [&](const Shape& shape, std::uint64_t stream) {
          std::vector<float> values;
          for (const double x : noise(shape, stream)) values.push_back(static_cast<float>(x / 7 + 0.1));
          return values;
        };
        const Shape domain = map->local_domain(), range = map->local_range();
        auto x = fractions(domain, streams[rank]), dy = fractions(range, 50 + streams[rank]);
        std::vector<float>&y = bits.y[rank], &dx = bits.dx[rank];
        y.resize(dy.size()), dx.resize(x.size());
        map->forward({x.data(), domain, spec.dtype}, {y.data(), range, spec.dtype});
        map->adjoint({dy.data(), range, spec.dtype}, {dx.data(), domain, spec.dtype});
      },
      wrap);
  EXPECT_EQ(errors, no_errors(world.size()));
  return bits;
}

TEST_P(Primitives, P7_BitsDoNotDependOnNumbersOfRanksOrOnWhenMessagesCome) {
  Draw draw = this->draw();
  for (int round = 0; round < 3; ++round) {
    const std::vector<int> mesh = draw.mesh(GetParam().ranks);
    const MoveSpec spec = *random_move(name(), mesh, draw);
    std::vector<int> shuffled(GetParam().ranks);
    std::iota(shuffled.begin(), shuffled.end(), 0);
    const std::vector<std::uint64_t> streams(shuffled.begin(), shuffled.end());
    draw.shuffle(shuffled);
    const auto late = [](unsigned seed) -> MeshRanks::Wrap {
      return [seed](std::unique_ptr<tenon::Communicator> inner, int rank) {
        return std::make_unique<Late>(std::move(inner), seed + static_cast<unsigned>(rank));
      };
    };
    MeshRanks plain(mesh), delayed(mesh), renumbered(mesh, shuffled);
    const Bits expected = bits_on(plain, name(), spec, streams);
    EXPECT_EQ(bits_on(delayed, name(), spec, streams, late(11)), expected);
    EXPECT_EQ(bits_on(renumbered, name(), spec, streams, late(12)), expected);
  }
}

// The same parts, each beside idle ranks: a further axis along which one rank has everything.
TEST_P(Primitives, P7_BitsDoNotDependOnRanksThatHaveNothing) {
  const int ranks = GetParam().ranks;
  if (ranks > 4) return;
  Draw draw = this->draw();
  for (int round = 0; round < 2; ++round) {
    const std::vector<int> mesh = draw.mesh(ranks);
    const MoveSpec spec = *random_move(name(), mesh, draw);
    std::vector<int> wide = mesh;
    wide.push_back(2);
    const int active = draw.small(0, 1), axis = static_cast<int>(mesh.size());
    MoveSpec beside = spec;
    for (Layout* layout : {&beside.from, &beside.to}) *layout = owned_along(*layout, {axis}, wide, active);
    // An idle neighbour has no part that a halo could come from.
    if (!tenon::primitive(name()).refusal(beside, wide).empty()) {
      EXPECT_EQ(name(), "halo_exchange_nested");
      continue;
    }
    std::vector<std::uint64_t> streams, wide_streams;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
      streams.push_back(rank);
      wide_streams.insert(wide_streams.end(), 2, rank);
    }
    MeshRanks narrow_world(mesh), wide_world(wide);
    const Bits expected = bits_on(narrow_world, name(), spec, streams),
               found = bits_on(wide_world, name(), beside, wide_streams);
    for (std::size_t rank = 0; rank < streams.size(); ++rank) {
      const std::size_t self = 2 * rank + static_cast<std::size_t>(active);
      EXPECT_EQ(found.y[self], expected.y[rank]) << text_of(spec);
      EXPECT_EQ(found.dx[self], expected.dx[rank]) << text_of(spec);
      EXPECT_TRUE(found.y[self ^ 1].empty() && found.dx[self ^ 1].empty()) << text_of(beside);
    }
  }
}

TEST_P(Primitives, P15_SeveralMapsAndFlightsAtATime) {
  expect_several_in_flight(on_threads, {name(), name(), name()}, GetParam().ranks, draw());
}

class PrimitivePairs : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, PrimitivePairs, ::testing::Range(1, 9));

TEST_P(PrimitivePairs, P15_BroadcastsAndSumsOverPartsThatOverlap) {
  expect_pairs_in_flight(on_threads, GetParam(), 4);
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
}  // namespace model_parallel::primitives_test
