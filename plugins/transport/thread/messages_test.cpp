// Point-to-point: matching by source and tag, order, non-blocking use, errors.
#include "test_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::thread_transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Messages, MatchBySourceAndTagInOrder) {
  TestWorld world(3);
  std::vector<int> got;
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<std::int32_t> value(1);
    if (rank == 0) {
      struct Expectation {
        int from, tag, value;
      };
      for (const Expectation& e :
           {Expectation{2, 7, 207}, {1, 7, 107}, {1, 5, 1051}, {1, 5, 1052}, {2, 5, 205}}) {
        communicator.receive(view_of(value), e.from, e.tag);
        EXPECT_EQ(value[0], e.value);
      }
      return;
    }
    std::vector<std::vector<std::int32_t>> data;
    std::vector<Request> requests;
    const auto send = [&](int number, int tag) {
      data.push_back({number});
      requests.push_back(communicator.start_send(view_of(data.back()), 0, tag));
    };
    if (rank == 1) {
      send(1051, 5);
      send(107, 7);
      send(1052, 5);
    } else {
      send(205, 5);
      send(207, 7);
    }
    for (auto it = requests.rbegin(); it != requests.rend(); ++it) communicator.wait(*it);
  });
  EXPECT_EQ(errors, none(3));
}

TEST(Messages, EveryoneExchangesWithEveryone) {
  constexpr int kRanks = 4, kRounds = 20;
  TestWorld world(kRanks);
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    for (int round = 0; round < kRounds; ++round) {
      std::vector<std::vector<double>> out(
          kRanks, std::vector<double>(100 + static_cast<std::size_t>(round), rank + 0.5 * round));
      std::vector<std::vector<double>> in(kRanks, std::vector<double>(out[0].size()));
      std::vector<Request> requests;
      for (int other = 0; other < kRanks; ++other) {
        requests.push_back(communicator.start_send(view_of(out[other]), other, round));
        requests.push_back(communicator.start_receive(view_of(in[other]), other, round));
      }
      for (const Request request : requests) communicator.wait(request);
      for (int other = 0; other < kRanks; ++other) {
        EXPECT_EQ(in[other], std::vector<double>(out[0].size(), other + 0.5 * round));
      }
    }
    // A message to the own rank is not sent.
    EXPECT_EQ(communicator.counts().messages_sent, 3u * kRounds);
    EXPECT_EQ(communicator.counts().bytes_sent, 3u * 8 * (100 * kRounds + kRounds * (kRounds - 1) / 2));
  });
  EXPECT_EQ(errors, none(kRanks));
}

TEST(Messages, DoneTurnsTrueOnceThePeerCame) {
  TestWorld world(2);
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<float> value(3, static_cast<float>(rank));
    if (rank == 0) {
      const Request request = communicator.start_receive(view_of(value), 1, 0);
      EXPECT_FALSE(communicator.done(request));
      communicator.barrier();  // rank 1 starts its send only after this
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!communicator.done(request)) ASSERT_LT(std::chrono::steady_clock::now(), limit);
      EXPECT_EQ(value[2], 1.0f);
      communicator.wait(request);
      EXPECT_THAT(error_of([&] { communicator.wait(request); }), HasSubstr("waits twice"));
    } else {
      communicator.barrier();
      communicator.send(view_of(value), 0, 0);
    }
  });
  EXPECT_EQ(errors, none(2));
}

TEST(Messages, ADisagreementNamesBothEnds) {
  TestWorld world(2);
  const auto errors = world.run([](int rank, Communicator& communicator) {
    std::vector<float> three(3);
    std::vector<double> four(4);
    if (rank == 0) communicator.send(view_of(three), 1, 9);
    if (rank == 1) communicator.receive(view_of(four), 0, 9);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("tag 9: rank 0 sends f32 [3], but rank 1 expects f64 [4]"));
  }
}

}  // namespace
}  // namespace tenon::thread_transport
