// Property P1 and the traffic of moves: a move and its reverse are the identity bit for bit, and the bytes
// counted where they leave equal the closed forms.
#include "movement.hpp"

namespace model_parallel::repartition_test {
namespace {

using tenon::testing::MeshRanks;

class Repartition : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Repartition, ::testing::Range(1, 9));

TEST_P(Repartition, P1_ThereAndBackIsTheIdentityBitForBit) {
  expect_there_and_back(on_threads, GetParam(), 6);
}

TEST_P(Repartition, P1_SendsWhatLeavesTheRankAndNoMore) {
  Draw draw(100 + static_cast<unsigned>(GetParam()));
  for (int round = 0; round < 6; ++round) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    const Shape shape = draw.shape(1, 3, 9);
    const Layout p = draw.layout(shape, mesh, false, false), q = draw.layout(shape, mesh, false, false);
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      const auto map = make_map(at, "repartition", {.from = p, .to = q}, "test");
      std::vector<float> x(map->local_domain().elements(), 1);
      std::vector<float> y(map->local_range().elements());
      const Box own = part(p, mesh, at.index()), need = part(q, mesh, at.index());
      const std::int64_t stays = intersection(own, need).elements();
      EXPECT_EQ(map->bytes_sent(tenon::Direction::kForward), 4 * (own.elements() - stays));
      EXPECT_EQ(map->bytes_sent(tenon::Direction::kTranspose), 4 * (need.elements() - stays));
      if (at.all() == nullptr) return;
      const auto before = at.all()->counts().bytes_sent;
      map->forward({x.data(), map->local_domain()}, {y.data(), map->local_range()});
      EXPECT_EQ(at.all()->counts().bytes_sent - before,
                static_cast<std::uint64_t>(map->bytes_sent(tenon::Direction::kForward)));
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

TEST_P(Repartition, P1_CopiesAndSumsFromAnyLayoutToAnyOther) {
  Draw draw(200 + static_cast<unsigned>(GetParam()));
  for (int round = 0; round < 6; ++round) {
    const std::vector<int> mesh = draw.mesh(GetParam());
    std::vector<std::pair<Layout, Layout>> pairs;
    for (int i = 0; i < 15; ++i) {
      const Shape shape = draw.shape(1, 3, 8);
      const Layout from = draw.layout(shape, mesh, true, true);
      Layout to = draw.layout(shape, mesh, true, true);
      std::erase_if(to.partial, [&](int axis) {
        return std::find(from.partial.begin(), from.partial.end(), axis) == from.partial.end();
      });
      pairs.emplace_back(from, to);
    }
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      std::uint64_t stream = 0;
      for (const auto& [from, to] : pairs) {
        stream += 1000;
        const auto map = redistribution(at, {.from = from, .to = to, .dtype = tenon::DType::kF64}, "test");
        auto x = held(from, mesh, at.index(), stream);
        std::vector<double> y(map->local_range().elements(), 99);
        map->forward(view_of(x, map->local_domain()), view_of(y, map->local_range()));
        const auto place = tenon::mesh_coordinates(at.index(), mesh);
        each_element(part(to, mesh, at.index()), [&, &from = from, &to = to](const auto& index,
                                                                             std::int64_t position) {
          EXPECT_EQ(y[position], total(from, mesh, stream, flat_index(index, to.shape), to.partial, place))
              << layout_text(from) << " to " << layout_text(to);
        });
      }
    });
    EXPECT_EQ(errors, no_errors(world.size()));
  }
}

TEST_P(Repartition, AllReduceAndBroadcastSendAtMostTwiceTheTensor) {
  const int ranks = GetParam();
  const std::vector<int> mesh{ranks};
  const Shape shape{7, 13};
  MeshRanks world(mesh);
  const auto errors = world.run([&](Mesh& at) {
    const Layout copies{shape};
    Layout sum = copies;
    sum.partial = {0};
    const auto all_reduce = make_map(at, "all_reduce", {.from = sum, .to = copies}, "test");
    const auto broadcast = make_map(at, "broadcast", {.from = owned(shape, mesh, 0), .to = copies}, "test");
    // 2 n (P - 1) / P, to whole elements.
    const double ring = 2.0 * 4 * 91 * (ranks - 1) / ranks;
    EXPECT_NEAR(static_cast<double>(all_reduce->bytes_sent(tenon::Direction::kForward)), ring, 4.0 * ranks);
    EXPECT_LE(static_cast<double>(broadcast->bytes_sent(tenon::Direction::kForward)), ring + 4.0 * ranks);
  });
  EXPECT_EQ(errors, no_errors(ranks));
}

TEST_P(Repartition, P7_SumsAreMadeInTheOrderOfPlaces) {
  const int ranks = GetParam();
  constexpr std::int64_t kElements = 23;
  const auto term = [](int rank, std::int64_t element) {
    return static_cast<float>(small_integer(static_cast<std::uint64_t>(rank), element) / 7 + 1e-3 * rank);
  };
  std::vector<float> expected;
  for (std::int64_t i = 0; i < kElements; ++i) {
    float sum = term(0, i);
    for (int rank = 1; rank < ranks; ++rank) sum += term(rank, i);
    expected.push_back(sum);
  }
  const Shape shape{kElements};
  const Layout whole{shape};
  const Layout sum{shape, {}, {0}};
  MeshRanks world({ranks});
  const auto errors = world.run([&](Mesh& at) {
    std::vector<float> x, y(static_cast<std::size_t>(kElements));
    for (std::int64_t i = 0; i < kElements; ++i) x.push_back(term(at.index(), i));
    make_map(at, "all_reduce", {.from = sum, .to = whole}, "test")
        ->forward({x.data(), shape}, {y.data(), shape});
    EXPECT_EQ(y, expected);
    const auto reduce =
        make_map(at, "sum_reduce", {.from = sum, .to = owned(shape, {ranks}, ranks - 1)}, "test");
    reduce->forward({x.data(), shape}, {y.data(), reduce->local_range()});
    if (at.index() == ranks - 1) {
      EXPECT_EQ(y, expected);
    }
  });
  EXPECT_EQ(errors, no_errors(ranks));
}

TEST(Repartition, P1_ComplexAndPackedElementsMoveToo) {
  const std::vector<int> mesh{3};
  const Shape shape{7, 2};
  for (const tenon::DType dtype :
       {tenon::DType::kC64, tenon::DType::kC128, tenon::DType::kU8, tenon::DType::kI64}) {
    const std::size_t bytes = tenon::dtype_bytes(dtype, 14);
    MeshRanks world(mesh);
    const auto errors = world.run([&](Mesh& at) {
      const auto gather =
          make_map(at, "all_gather",
                   {.from = {shape, {{0, {0}, {0, 4, 4, 7}}}}, .to = {shape}, .dtype = dtype}, "test");
      std::vector<std::byte> whole(bytes), out(bytes);
      for (std::size_t i = 0; i < bytes; ++i) whole[i] = static_cast<std::byte>(i * 7 + 1);
      const std::int64_t first = at.index() == 0 ? 0 : 4;
      gather->forward({whole.data() + tenon::dtype_bytes(dtype, 2 * first), gather->local_domain(), dtype},
                      {out.data(), shape, dtype});
      EXPECT_EQ(out, whole);
    });
    EXPECT_EQ(errors, no_errors(3));
  }
}

}  // namespace
}  // namespace model_parallel::repartition_test
