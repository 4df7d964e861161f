// Property P14: a mismatch is the same error on every rank, before any message of the move; and a rank that
// fails or is late inside a move does not let the others wait for ever.
#include "moves.hpp"

#include <tenon/testing/mesh_ranks.hpp>
#include <tenon/transport.hpp>

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace model_parallel::agreement_test {
namespace {

using tenon::testing::MeshRanks;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Refusal {
  const char* title;
  const char* primitive;
  /// The spec of the rank at `index` of a mesh of 2 x 2.
  std::function<MoveSpec(int index)> spec;
  std::vector<const char*> words;
};

const Shape kShape{6, 4};

std::vector<Refusal> refusals() {
  const Layout rows{kShape, {{0, {0, 1}, {0, 2, 3, 3, 6}}}}, copies{kShape};
  Layout sum = copies;
  sum.partial = {1};
  const auto always = [](const Layout& from, const Layout& to) {
    return [=](int) { return MoveSpec{.from = from, .to = to}; };
  };
  const auto sliding = [](const Layout& from, const Layout& to) {
    return [=](int) {
      MoveSpec spec{.from = from, .to = to};
      spec.windows = {tenon::sliding_map({5, 1, 1, 2, 2}), nullptr};
      return spec;
    };
  };
  return {
      {"OffsetsEndEarly",
       "repartition",
       always({kShape, {{0, {0, 1}, {0, 2, 3, 3, 5}}}}, rows),
       {"the offset table of dimension 0 over axes 0, 1 must rise from 0 to 6 in 4 parts, found [0, 2, 3, 3, "
        "5]"}},
      {"TooFewParts",
       "repartition",
       always({kShape, {{0, {0, 1}, {0, 3, 6}}}}, rows),
       {"in 4 parts, found [0, 3, 6]"}},
      {"AxisTwice",
       "repartition",
       always({kShape, {{0, {0}, {0, 3, 6}}, {1, {0}, {0, 2, 4}}}}, rows),
       {"axis 0 of the mesh is used twice"}},
      {"NoSuchAxis",
       "repartition",
       always({kShape, {{0, {2}, {0, 6}}}}, rows),
       {"laid over axis 2 of the mesh, which has 2 axes ([2, 2])"}},
      {"DimensionTwice",
       "repartition",
       always({kShape, {{0, {0}, {0, 3, 6}}, {0, {1}, {0, 3, 6}}}}, rows),
       {"dimension 0 is sharded twice"}},
      {"OtherShape",
       "repartition",
       always(rows, {Shape{6, 5}}),
       {"[6, 4] cannot become one of shape [6, 5]"}},
      {"SumFromNothing", "repartition", always(copies, sum), {"what is no sum over axis 1"}},
      {"SumsInARepartition", "repartition", always(sum, copies), {"a repartition makes no sums"}},
      {"NoSum", "all_reduce", always(rows, copies), {"the input layout is not a partial sum"}},
      {"CopiesToGather", "all_gather", always(copies, rows), {"copies become parts"}},
      {"TwoOwners", "scatter", always(rows, rows), {"one rank alone must hold the tensor before"}},
      {"Windows",
       "repartition",
       [rows](int) {
         MoveSpec spec{.from = rows, .to = rows};
         spec.windows = {nullptr, nullptr};
         return spec;
       },
       {"windows are for halo_exchange alone"}},
      {"WindowsWithoutMaps",
       "halo_exchange",
       always(rows, rows),
       {"a map for each of the 2 dimensions", "found 0"}},
      {"HaloWiderThanTheNeighbour",
       "halo_exchange_nested",
       sliding(rows, rows),
       {"part 0 of dimension 0 reads elements 0 to 4, but it and its neighbours hold 0 to 3; take "
        "halo_exchange"}},
      {"HaloBesideAnEmptyNeighbour",
       "halo_exchange_nested",
       sliding({kShape, {{0, {0, 1}, {0, 3, 3, 6, 6}}}}, {kShape, {{0, {0, 1}, {0, 3, 3, 6, 6}}}}),
       {"part 0 of dimension 0 reads elements 0 to 5, but it and its neighbours hold 0 to 3"}},
      {"HaloOverOtherAxes",
       "halo_exchange_nested",
       sliding({kShape, {{0, {0}, {0, 3, 6}}}}, {kShape, {{0, {1}, {0, 3, 6}}}}),
       {"dimension 0 is sharded over other axes afterwards; use halo_exchange"}},
      {"OneRankDiffers",
       "repartition",
       [=](int index) {
         const Layout other{kShape, {{0, {0, 1}, {0, 2, 4, 5, 6}}}};
         return MoveSpec{.from = index == 2 ? other : rows, .to = copies};
       },
       {"ranks 0 and 2 of the mesh do not mean the same", "0, 2, 3, 3, 6", "0, 2, 4, 5, 6"}},
      {"OneRankHasAnotherType",
       "repartition",
       [=](int index) {
         return MoveSpec{
             .from = rows, .to = copies, .dtype = index == 3 ? tenon::DType::kF64 : tenon::DType::kF32};
       },
       {"ranks 0 and 3 of the mesh do not mean the same", "f64"}},
      {"OneRankIsRefused",
       "repartition",
       [=](int index) {
         return MoveSpec{.from = rows, .to = index == 1 ? Layout{Shape{7, 4}} : copies};
       },
       {"rank 1 of the mesh", "[6, 4] cannot become one of shape [7, 4]"}},
  };
}

class Refused : public ::testing::TestWithParam<Refusal> {};
INSTANTIATE_TEST_SUITE_P(All, Refused, ::testing::ValuesIn(refusals()),
                         [](const auto& entry) { return entry.param.title; });

TEST_P(Refused, P14_SameErrorOnAllRanksBeforeAnyMessage) {
  MeshRanks world({2, 2});
  const auto errors = world.run([&](Mesh& at) {
    make_map(at, GetParam().primitive, GetParam().spec(at.index()), "the move of node 'c1'");
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error, errors[0]);
    EXPECT_THAT(error, HasSubstr("the move of node 'c1': "));
    for (const char* words : GetParam().words) EXPECT_THAT(error, HasSubstr(words));
  }
}

TEST(Agreement, P14_ARankThatFailsInAMoveEndsTheWaitsOfTheOthers) {
  MeshRanks world({3}, {}, 20);
  const auto errors = world.run([&](Mesh& at) {
    const Layout rows{Shape{6}, {{0, {0}, {0, 2, 4, 6}}}};
    const auto map = make_map(at, "all_gather", {.from = rows, .to = {Shape{6}}}, "test");
    std::vector<float> x(2), y(6);
    if (at.index() == 1) {
      world.transport().cancel("rank 1 has no memory left");
      tenon::fail_run("no memory left");
    }
    map->forward({x.data(), Shape{2}}, {y.data(), Shape{6}});
  });
  EXPECT_EQ(errors[1], "no memory left");
  for (const std::size_t rank : {0u, 2u}) EXPECT_THAT(errors[rank], HasSubstr("rank 1 has no memory left"));
}

/// Throws at its first message after it is armed.
class Broken final : public tenon::CommunicatorDecorator {
 public:
  Broken(std::unique_ptr<tenon::Communicator> inner, const std::atomic<bool>& armed)
      : CommunicatorDecorator(std::move(inner)), armed_(armed) {}
  tenon::Request start_send(tenon::TensorView data, int to, int tag) override {
    if (armed_) tenon::fail_run("the cable is cut");
    return CommunicatorDecorator::start_send(data, to, tag);
  }

 private:
  const std::atomic<bool>& armed_;
};

TEST(Agreement, P14_ARankThatFailsInsideAnyPrimitiveEndsTheWaitsOfTheOthers) {
  const std::vector<int> mesh{2, 2};
  for (const tenon::Primitive& primitive : tenon::primitives()) {
    Draw draw(14);
    int failed = 0;
    for (int round = 0; round < 8; ++round) {
      const MoveSpec spec = *random_move(primitive.name, mesh, draw);
      MeshRanks world(mesh, {}, 20);
      std::atomic<bool> armed = false;
      const auto begin = std::chrono::steady_clock::now();
      const auto errors = world.run(
          [&](Mesh& at) {
            const auto map = make_map(at, primitive.name, spec, "test");
            at.all()->barrier();
            if (at.index() == 1) armed = true;
            std::vector<float> x(map->local_domain().elements(), 1),
                y(static_cast<std::size_t>(map->local_range().elements()));
            try {
              map->forward({x.data(), map->local_domain()}, {y.data(), map->local_range()});
              map->adjoint({y.data(), map->local_range()}, {x.data(), map->local_domain()});
            } catch (const tenon::Error& error) {
              // As in a run, a rank that fails ends the others.
              world.transport().cancel(error.what());
              throw;
            }
          },
          [&](std::unique_ptr<tenon::Communicator> inner, int rank) -> std::unique_ptr<tenon::Communicator> {
            if (rank != 1) return inner;
            return std::make_unique<Broken>(std::move(inner), armed);
          });
      for (const std::string& error : errors) {
        EXPECT_THAT(error, AnyOf("", HasSubstr("the cable is cut"))) << primitive.name;
      }
      failed += errors[1].empty() ? 0 : 1;
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << primitive.name;
    }
    EXPECT_GT(failed, 0) << primitive.name << ": rank 1 never sent anything";
  }
}

TEST(Agreement, P14_ARankThatDoesNotComeIsNamedAfterTheDeadline) {
  MeshRanks world({3}, {}, 2);
  std::atomic<int> ended = 0;
  const auto errors = world.run([&](Mesh& at) {
    const Layout rows{Shape{6}, {{0, {0}, {0, 2, 4, 6}}}};
    const auto map = make_map(at, "all_gather", {.from = rows, .to = {Shape{6}}}, "test");
    std::vector<float> x(2), y(6);
    if (at.index() == 1) {
      while (ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return;
    }
    try {
      map->forward({x.data(), Shape{2}}, {y.data(), Shape{6}});
    } catch (const tenon::Error&) {
      ++ended;
      throw;
    }
    ++ended;
  });
  EXPECT_EQ(errors[1], "");
  for (const std::size_t rank : {0u, 2u})
    EXPECT_THAT(errors[rank],
                AllOf(HasSubstr("rank 1 did not start the message of 'model'"), HasSubstr("2 s")));
}

TEST(Agreement, CallsWithAnotherShapeAreRefusedOnTheSpot) {
  MeshRanks world({2});
  const auto errors = world.run([&](Mesh& at) {
    const auto map =
        make_map(at, "all_gather", {.from = {Shape{6}, {{0, {0}, {0, 2, 6}}}}, .to = {Shape{6}}}, "test");
    std::vector<float> x(6), y(6);
    map->forward({x.data(), Shape{6}}, {y.data(), Shape{6}});
  });
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("planned from f32 [2] to [6]"), HasSubstr("called from f32 [6] to f32 [6]")));
}

}  // namespace
}  // namespace model_parallel::agreement_test
