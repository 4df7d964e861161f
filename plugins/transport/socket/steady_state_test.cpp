// After a first round, operations allocate nothing in the calling thread. The conformance kit checks the
// thread that moves bytes.
#include "socket_world.hpp"

#include "base/testing/allocation_count.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tenon::socket_transport {
namespace {

TEST(SteadyState, AllocatesNothing) {
  constexpr int kRanks = 3;
  auto meshes = loopback_meshes(kRanks);
  const auto clock = make_wall_clock();
  std::vector<std::unique_ptr<RingTransport>> transports;
  for (SocketMesh& mesh : meshes) {
    WorldSpec spec;
    spec.ranks = kRanks;
    spec.deadline_s = 30;
    spec.clock = clock.get();
    transports.push_back(std::make_unique<RingTransport>(std::make_unique<SocketPort>(std::move(mesh)), spec,
                                                         "transport.socket"));
  }
  std::array<std::int64_t, kRanks> allocations{};
  allocations.fill(-1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const int all[] = {0, 1, 2};
      const auto group = transports[rank]->open(rank, {.ranks = all, .name = "replicas"});
      std::vector<float> data(200001), rows(kRanks * 100), receive(kRanks * 10), send(kRanks * 10);
      const std::int64_t counts[] = {10, 10, 10};
      const auto view = [](std::vector<float>& x) {
        return TensorView{x.data(), Shape{static_cast<std::int64_t>(x.size())}, DType::kF32};
      };
      const auto as_rows = [&](std::vector<float>& x) {
        return TensorView{x.data(), Shape{kRanks, static_cast<std::int64_t>(x.size()) / kRanks}, DType::kF32};
      };
      const auto round = [&] {
        const Request a = group->start_all_reduce(view(data), ReduceOp::kMax);
        const Request b = group->start_reduce_scatter(as_rows(rows), ReduceOp::kMax);
        group->wait(b);
        group->wait(a);
        group->all_gather(as_rows(rows));
        group->broadcast(view(data), 1);
        group->wait(group->start_reduce(view(data), 0, ReduceOp::kMax));
        group->wait(group->start_all_to_all(view(send), counts, view(receive), counts));
        const Request s = group->start_send(view(send), (rank + 1) % kRanks, 0);
        const Request r = group->start_receive(view(receive), (rank + 2) % kRanks, 0);
        group->wait(r);
        group->wait(s);
        group->barrier();
      };
      // Warms up the pools with every kind of operation before the count begins.
      for (int i = 0; i < 60; ++i) round();
      const std::int64_t before = tenon::testing::allocation_count();
      for (int i = 0; i < 40; ++i) round();
      allocations[rank] = tenon::testing::allocation_count() - before;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::int64_t count : allocations) EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace tenon::socket_transport
