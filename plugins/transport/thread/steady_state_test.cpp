// After a first round, operations allocate nothing.
#include "test_world.hpp"

#include "base/testing/allocation_count.hpp"

#include <gtest/gtest.h>

namespace tenon::thread_transport {
namespace {

void expect_no_allocations(bool simulated) {
  constexpr int kRanks = 3;
  TestWorld world(kRanks, simulated, 30, simulated ? LinkSpec{1e9, 1e-6, 1e-6} : LinkSpec{});
  std::vector<std::int64_t> allocations(kRanks, -1);
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<float> data(999), rows(kRanks * 100), receive(kRanks * 10), send(kRanks * 10);
    const std::int64_t counts[] = {10, 10, 10};
    const auto round = [&] {
      const Request a = communicator.start_all_reduce(view_of(data), ReduceOp::kSum);
      const Request b = communicator.start_reduce_scatter(rows_of(rows, kRanks), ReduceOp::kSum);
      communicator.wait(b);
      communicator.wait(a);
      communicator.all_gather(rows_of(rows, kRanks));
      communicator.broadcast(view_of(data), 1);
      communicator.wait(communicator.start_reduce(view_of(data), 0, ReduceOp::kSum));
      communicator.wait(communicator.start_all_to_all(view_of(send), counts, view_of(receive), counts));
      const Request s = communicator.start_send(view_of(send), (rank + 1) % kRanks, 0);
      const Request r = communicator.start_receive(view_of(receive), (rank + 2) % kRanks, 0);
      communicator.wait(r);
      communicator.wait(s);
      world.clock().advance(0.001);
      communicator.barrier();
    };
    // Warms up the pools with every kind of operation before the count begins.
    for (int i = 0; i < 40; ++i) round();
    communicator.barrier();
    const std::int64_t before = tenon::testing::allocation_count();
    for (int i = 0; i < 40; ++i) round();
    allocations[rank] = tenon::testing::allocation_count() - before;
  });
  EXPECT_EQ(errors, none(kRanks));
  EXPECT_EQ(allocations, std::vector<std::int64_t>(kRanks, 0));
}

TEST(SteadyState, AllocatesNothingOnTheWallClock) {
  expect_no_allocations(false);
}

TEST(SteadyState, AllocatesNothingOnTheSimulatedClock) {
  expect_no_allocations(true);
}

}  // namespace
}  // namespace tenon::thread_transport
