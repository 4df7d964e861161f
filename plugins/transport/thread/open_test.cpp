// Opening, naming, epochs, reopening.
#include "test_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tenon::thread_transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Open, RefusesWhatCannotBeAGroup) {
  TestWorld world(3);
  const auto open = [&](int rank, std::vector<int> ranks) {
    return error_of([&] { world.transport().open(rank, {.ranks = ranks, .name = "g"}); });
  };
  EXPECT_THAT(open(0, {1, 2}), HasSubstr("rank 0 opens 'g' of ranks 1, 2: it is not a member"));
  EXPECT_THAT(open(0, {0, 3}), HasSubstr("the world has ranks 0 ... 2"));
  EXPECT_THAT(open(0, {0, 1, 0}), HasSubstr("rank 0 is listed twice"));
  const auto kept = world.open(0);
  EXPECT_THAT(error_of([&] { world.open(0); }), HasSubstr("rank 0 has 'replicas' open already"));
  EXPECT_THAT(error_of([&] {
                world.transport().open(
                    1, {.ranks = world.all(), .name = "replicas", .purpose = Purpose::kModel});
              }),
              HasSubstr("rank 1 opens 'replicas' for model, another rank for gradient"));
  EXPECT_THAT(world.transport().local_ranks(), ElementsAre(0, 1, 2));
}

TEST(Open, RefusesABadWorld) {
  const auto clock = make_wall_clock();
  const auto connect = [&](const std::function<void(WorldSpec&)>& spoil) {
    WorldSpec spec;
    spec.ranks = 2;
    spec.clock = clock.get();
    spoil(spec);
    ThreadTransport transport;
    return error_of([&] {
      transport.connect(spec);
      transport.connect(spec);
    });
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(connect([](WorldSpec& spec) { spec.ranks = 0; }), HasSubstr("0 ranks"));
  EXPECT_THAT(connect([](WorldSpec& spec) { spec.deadline_s = 0; }), HasSubstr("the deadline is 0 s"));
  EXPECT_THAT(connect([](WorldSpec& spec) { spec.link.bandwidth_bits_per_s = -1; }),
              HasSubstr("not be negative"));
  EXPECT_THAT(connect([](WorldSpec& spec) { spec.link.latency_s = kNan; }), HasSubstr("not be negative"));
  EXPECT_THAT(connect([](WorldSpec& spec) { spec.clock = nullptr; }), HasSubstr("without a clock"));
  EXPECT_THAT(connect([](WorldSpec&) {}), HasSubstr("connected twice"));
  ThreadTransport unconnected;
  EXPECT_THAT(error_of([&] { unconnected.open(0, {}); }), HasSubstr("open before connect"));
}

TEST(Open, SubgroupsAndSeveralCommunicatorsLiveSideBySide) {
  TestWorld world(4);
  const auto errors = world.run([&](int rank, Communicator& everyone) {
    const std::vector<int> members = rank % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{1, 3};
    const auto pair =
        world.transport().open(rank, {.ranks = members, .name = "pair", .purpose = Purpose::kModel});
    EXPECT_EQ(pair->size(), 2);
    EXPECT_EQ(pair->rank(), rank == 2 || rank == 1 ? 0 : 1);
    std::vector<std::int32_t> a{rank}, b{rank};
    const Request first = everyone.start_all_reduce(view_of(a), ReduceOp::kSum);
    pair->all_reduce(view_of(b), ReduceOp::kSum);
    everyone.wait(first);
    EXPECT_EQ(a[0], 6);
    EXPECT_EQ(b[0], rank % 2 == 0 ? 2 : 4);
    EXPECT_EQ(world.transport().counts(rank, Purpose::kModel).operations, 1u);
  });
  EXPECT_EQ(errors, none(4));
}

TEST(Open, ANameMayBeOpenedAgainOnceClosed) {
  TestWorld world(3);
  const auto errors = world.run([&](int rank, Communicator&) {
    for (int generation = 0; generation < 20; ++generation) {
      const auto again = world.open(rank, "again");
      std::vector<std::int32_t> value{rank + generation};
      again->all_reduce(view_of(value), ReduceOp::kSum);
      EXPECT_EQ(value[0], 3 + 3 * generation);
    }
  });
  EXPECT_EQ(errors, none(3));
}

TEST(Epochs, AnOlderOneIsRefusedAndEndsItsOperations) {
  TestWorld world(3);
  const int survivors[] = {0, 1};
  std::vector<std::string> waiting(2);
  const auto errors = world.run([&](int rank, Communicator& old) {
    std::vector<float> data(4);
    if (rank == 2) {  // dies: never joins
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return;
    }
    const auto open = [&](std::uint32_t epoch) {
      return world.transport().open(
          rank, {.ranks = survivors, .name = "replicas", .purpose = Purpose::kGradient, .epoch = epoch});
    };
    if (rank == 0) {
      waiting[0] = error_of([&] { old.all_reduce(view_of(data), ReduceOp::kSum); });
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const auto fresh = open(1);
    if (rank == 1) waiting[1] = error_of([&] { old.all_reduce(view_of(data), ReduceOp::kSum); });
    fresh->all_reduce(view_of(data), ReduceOp::kSum);
    EXPECT_THAT(error_of([&] { open(0); }),
                HasSubstr("'replicas' of epoch 0 is refused, rank 0 is in epoch 1"));
    fresh->barrier();
  });
  for (const std::string& error : waiting) {
    EXPECT_THAT(error, HasSubstr("'replicas' belongs to epoch 0, but rank 0 is in epoch 1"));
  }
  EXPECT_EQ(errors, none(3));
}

}  // namespace
}  // namespace tenon::thread_transport
