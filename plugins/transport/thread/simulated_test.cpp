// The transport under the simulated clock, against closed forms of the link model, and under the wall clock
// with a link that really sleeps.
#include "test_world.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace tenon::thread_transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr LinkSpec kLink{.bandwidth_bits_per_s = 8e6, .latency_s = 0.125, .jitter_s = 0};  // 1e6 bytes/s

TEST(Simulated, ACollectiveEndsAtTheLastStartPlusTheRing) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    TestWorld world(ranks, true, 60, kLink);
    std::vector<double> ends(ranks);
    std::vector<double> blocked(ends.size());
    const auto errors = world.run([&](int rank, Communicator& communicator) {
      std::vector<float> data(1000 * static_cast<std::size_t>(ranks));
      world.clock().advance(1.0 + rank);
      communicator.all_reduce(view_of(data), ReduceOp::kSum);
      ends[rank] = world.clock().now();
      blocked[rank] = communicator.counts().blocked_seconds;
    });
    EXPECT_EQ(errors, none(ranks));
    const double bytes = 4000.0 * ranks, hops = 2.0 * (ranks - 1);
    const double end = ranks + hops * bytes / ranks / 1e6 + hops * 0.125;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_DOUBLE_EQ(ends[rank], end);
      EXPECT_DOUBLE_EQ(blocked[rank], end - 1.0 - rank);
    }
  }
}

TEST(Simulated, ComputeHidesAStartedCollective) {
  TestWorld world(2, true, 60, kLink);
  const auto errors = world.run([&](int, Communicator& communicator) {
    std::vector<float> data(250000);  // 1e6 bytes: 1 s of transfer, 0.25 s of latency
    const Request request = communicator.start_all_reduce(view_of(data), ReduceOp::kSum);
    EXPECT_FALSE(communicator.done(request));
    world.clock().advance(1.0);
    EXPECT_FALSE(communicator.done(request));
    world.clock().advance(0.5);
    EXPECT_TRUE(communicator.done(request));
    communicator.wait(request);
    EXPECT_EQ(world.clock().now(), 1.5);
    EXPECT_EQ(communicator.counts().blocked_seconds, 0);
  });
  EXPECT_EQ(errors, none(2));
}

TEST(Simulated, CollectivesOfOneCommunicatorFollowEachOther) {
  TestWorld world(2, true, 60, kLink);
  const auto errors = world.run([&](int, Communicator& communicator) {
    std::vector<float> a(250000), b(250000);
    const Request first = communicator.start_all_reduce(view_of(a), ReduceOp::kSum);
    const Request second = communicator.start_all_reduce(view_of(b), ReduceOp::kSum);
    communicator.wait(first);
    EXPECT_DOUBLE_EQ(world.clock().now(), 1.25);
    communicator.wait(second);
    EXPECT_DOUBLE_EQ(world.clock().now(), 2.5);
  });
  EXPECT_EQ(errors, none(2));
}

TEST(Simulated, PingPongTakesExactlyTheClosedForm) {
  constexpr int kRounds = 10;
  TestWorld world(2, true, 60, kLink);
  double end = -1;
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<std::uint8_t> ball(500000);  // 0.5 s each way, plus 0.125 s: all exact in binary
    for (int round = 0; round < kRounds; ++round) {
      if (rank == 0) {
        communicator.send(view_of(ball), 1, round);
        communicator.receive(view_of(ball), 1, round);
      } else {
        communicator.receive(view_of(ball), 0, round);
        communicator.send(view_of(ball), 0, round);
      }
    }
    if (rank == 0) end = world.clock().now();
  });
  EXPECT_EQ(errors, none(2));
  EXPECT_EQ(end, 2 * kRounds * 0.625);
}

TEST(Simulated, MessagesOfOneSenderQueueOnItsLink) {
  TestWorld world(3, true, 60, kLink);
  std::vector<double> arrivals(3);
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<std::uint8_t> data(1000000), more(1000000);
    if (rank == 0) {
      const Request one = communicator.start_send(view_of(data), 1, 0);
      const Request two = communicator.start_send(view_of(more), 2, 0);
      communicator.wait(two);
      EXPECT_EQ(world.clock().now(), 2.0);
      communicator.wait(one);
      EXPECT_EQ(world.clock().now(), 2.0);
    } else {
      communicator.receive(view_of(data), 0, 0);
      arrivals[rank] = world.clock().now();
    }
  });
  EXPECT_EQ(errors, none(3));
  EXPECT_THAT(arrivals, ElementsAre(0, 1.125, 2.125));
}

// Two actors beside two workers: an asynchronous exchange whose order of events must repeat exactly.
std::vector<std::string> asynchronous_history() {
  TestWorld world(3, true, 60, {.bandwidth_bits_per_s = 8e6, .latency_s = 0.001, .jitter_s = 0.05});
  std::vector<std::string> log;  // only the holder of the baton writes
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<float> value(1000, static_cast<float>(rank));
    Clock& clock = world.clock();
    for (int round = 0; round < 5; ++round) {
      if (rank == 0) {
        for (const int from : {1, 2}) {
          communicator.receive(view_of(value), from, 0);
          log.push_back(fmt::format("{:.17g} got {} from {}", clock.now(), value[0], from));
          communicator.send(view_of(value), from, 1);
        }
      } else {
        clock.advance(0.1 * rank);
        value[0] += 1;
        log.push_back(fmt::format("{:.17g} rank {} sends {}", clock.now(), rank, value[0]));
        communicator.send(view_of(value), 0, 0);
        communicator.receive(view_of(value), 0, 1);
      }
    }
    communicator.all_reduce(view_of(value), ReduceOp::kSum);
    log.push_back(fmt::format("{:.17g} rank {} ends with {}", clock.now(), rank, value[0]));
  });
  EXPECT_EQ(errors, none(3));
  return log;
}

TEST(Simulated, AnAsynchronousHistoryRepeatsExactly) {
  const auto first = asynchronous_history();
  EXPECT_EQ(first.size(), 23u);
  for (int repetition = 0; repetition < 50; ++repetition) ASSERT_EQ(asynchronous_history(), first);
}

TEST(Simulated, JitterDelaysByItsDrawOnly) {
  const LinkSpec link{.bandwidth_bits_per_s = 0, .latency_s = 0, .jitter_s = 0.5};
  TestWorld world(2, true, 60, link);
  const auto errors = world.run([&](int, Communicator& communicator) {
    const std::uint64_t stream = jitter_stream("replicas", world.all());
    double expected = 0;
    for (std::uint64_t i = 0; i < 5; ++i) {
      communicator.barrier();
      expected += link_jitter(link, 1, stream, i);
      EXPECT_DOUBLE_EQ(world.clock().now(), expected);
    }
    EXPECT_GT(expected, 0);
  });
  EXPECT_EQ(errors, none(2));
}

TEST(Simulated, AMemberThatNeverComesIsNamedAtOnce) {
  TestWorld world(3, true, 1e6, kLink);
  std::vector<std::unique_ptr<Communicator>> kept(3);
  const auto errors = world.run([&](int rank, Communicator&) {
    // Own ends stay open, so that no member learns of the absence from a closed one.
    kept[rank] = world.open(rank, "other");
    std::vector<float> data(4);
    world.clock().advance(1);
    if (rank != 1) kept[rank]->all_reduce(view_of(data), ReduceOp::kSum);
  });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(errors[rank], HasSubstr("rank 1 will never join all_reduce #0 of 'other'"));
    EXPECT_THAT(errors[rank], HasSubstr("deadlock"));
  }
  EXPECT_EQ(errors[1], "");
}

TEST(Simulated, TheDeadlineCountsVirtualSeconds) {
  TestWorld world(2, true, 60);
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    world.clock().advance(rank == 1 ? 100 : 1);
    communicator.barrier();
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error,
                HasSubstr("rank 1 did not join barrier #0 of 'replicas' within 60 s; it came after 99"));
  }
}

TEST(Simulated, CancelReachesParkedMembers) {
  TestWorld world(3, true);
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<float> data(4);
    if (rank == 2) {
      world.clock().advance(5);
      communicator.cancel("enough");
      return;
    }
    rank == 0 ? communicator.all_reduce(view_of(data), ReduceOp::kSum)
              : communicator.receive(view_of(data), 2, 0);
  });
  EXPECT_THAT(errors, ElementsAre("enough", "enough", ""));
}

TEST(WallLink, IsReallySleptThrough) {
  // 2 (K-1)/K S/B + 2 (K-1) L with K = 2, S = 40000 bytes: 0.04 s + 0.02 s.
  TestWorld world(2, false, 30, {.bandwidth_bits_per_s = 8e6, .latency_s = 0.01, .jitter_s = 0});
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<float> data(10000, 1.0f);
    communicator.barrier();  // 0.02 s
    const double begin = world.clock().now();
    communicator.all_reduce(view_of(data), ReduceOp::kSum);
    const double took = world.clock().now() - begin;
    EXPECT_GE(took, 0.055);  // the other member may have left the barrier slightly earlier
    EXPECT_LT(took, 5);
    EXPECT_EQ(data[0], 2.0f);
    const double before = world.clock().now();
    rank == 0 ? communicator.send(view_of(data), 1, 0) : communicator.receive(view_of(data), 0, 0);
    EXPECT_GE(world.clock().now() - before, rank == 0 ? 0.035 : 0.045);
  });
  EXPECT_EQ(errors, none(2));
}

}  // namespace
}  // namespace tenon::thread_transport
