// Every collective against its plain definition, the adjoint identities, the closed forms of traffic, and
// equal bits under any scheduling of threads.
#include "test_world.hpp"

#include <tenon/sdk/fixed_order.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <complex>
#include <cstring>
#include <mutex>
#include <random>
#include <set>

namespace tenon::thread_transport {
namespace {

// Small integers in floating point: every summation order has the same exact value.
template <typename T>
std::vector<T> exact_values(std::size_t count, int rank) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>((i * 7 + static_cast<std::size_t>(rank) * 13) % 31);
  return values;
}

std::vector<double> normal_values(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& x : values) x = normal(engine);
  return values;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

class Collectives : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  std::size_t count() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4));

template <typename T>
void expect_plain_all_reduce(int ranks) {
  for (const std::size_t elements : {0u, 1u, 7u, 64u, 1001u}) {
    TestWorld world(ranks);
    std::vector<T> sum(elements), most(elements), least(elements);
    for (std::size_t i = 0; i < elements; ++i) {
      for (int rank = 0; rank < ranks; ++rank) {
        const T x = exact_values<T>(elements, rank)[i];
        sum[i] = static_cast<T>(sum[i] + x);
        most[i] = rank == 0 ? x : std::max(most[i], x);
        least[i] = rank == 0 ? x : std::min(least[i], x);
      }
    }
    std::mutex mutex;
    const auto errors = world.run([&](int rank, Communicator& communicator) {
      for (const auto& [op, expected] :
           {std::pair{ReduceOp::kSum, &sum}, {ReduceOp::kMax, &most}, {ReduceOp::kMin, &least}}) {
        auto values = exact_values<T>(elements, rank);
        communicator.all_reduce(view_of(values), op);
        const std::lock_guard lock(mutex);
        EXPECT_EQ(values, *expected);
      }
    });
    EXPECT_EQ(errors, none(ranks));
  }
}

TEST_P(Collectives, AllReduceIsThePlainReduction) {
  expect_plain_all_reduce<float>(ranks());
  expect_plain_all_reduce<double>(ranks());
  expect_plain_all_reduce<std::int32_t>(ranks());
  expect_plain_all_reduce<std::int64_t>(ranks());
  expect_plain_all_reduce<std::uint8_t>(ranks());
}

TEST_P(Collectives, LargeAllReduceHasTheBitsOfTheFixedOrder) {
  constexpr std::size_t kElements = 300007;  // several units, chunks that end inside them
  std::vector<std::vector<double>> parts;
  for (int rank = 0; rank < ranks(); ++rank)
    parts.push_back(normal_values(kElements, static_cast<unsigned>(rank)));
  std::vector<double> expected(kElements);
  for (int chunk = 0; chunk < ranks(); ++chunk) {
    const ElementRange range = ring_chunk(kElements, DType::kF64, chunk, ranks());
    for (std::size_t i = range.begin; i < static_cast<std::size_t>(range.end); ++i) {
      expected[i] = parts[(chunk + 1) % ranks()][i];
      for (int k = 2; k <= ranks(); ++k) expected[i] += parts[(chunk + k) % ranks()][i];
    }
  }
  TestWorld world(ranks());
  auto values = parts;
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    communicator.all_reduce(view_of(values[rank]), ReduceOp::kSum);
  });
  EXPECT_EQ(errors, none(ranks()));
  for (const auto& result : values) EXPECT_TRUE(result == expected);
}

TEST_P(Collectives, ComplexIsReducedAsPairs) {
  TestWorld world(ranks());
  std::vector<std::vector<std::complex<float>>> values(count());
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    auto& mine = values[rank];
    for (int i = 0; i < 33; ++i) mine.emplace_back(static_cast<float>(i), static_cast<float>(rank));
    communicator.all_reduce({mine.data(), Shape{33}, DType::kC64}, ReduceOp::kSum);
  });
  EXPECT_EQ(errors, none(ranks()));
  const int sum_of_ranks = ranks() * (ranks() - 1) / 2;
  for (const auto& mine : values) {
    for (int i = 0; i < 33; ++i) {
      EXPECT_EQ(mine[i],
                std::complex<float>(static_cast<float>(i * ranks()), static_cast<float>(sum_of_ranks)));
    }
  }
}

TEST_P(Collectives, ReduceScatterAndReduceHaveTheBitsOfTheFixedOrder) {
  for (const std::size_t row : {0u, 1u, 5u, 70001u}) {
    TestWorld world(ranks());
    std::vector<std::vector<double>> parts, scattered, reduced;
    for (int rank = 0; rank < ranks(); ++rank)
      parts.push_back(normal_values(row * count(), static_cast<unsigned>(rank) + 9));
    scattered = reduced = parts;
    const int root = ranks() - 1;
    const auto errors = world.run([&](int rank, Communicator& communicator) {
      const std::size_t r = rank;
      communicator.wait(communicator.start_reduce_scatter(rows_of(scattered[r], ranks()), ReduceOp::kSum));
      communicator.wait(communicator.start_reduce(view_of(reduced[r]), root, ReduceOp::kSum));
    });
    EXPECT_EQ(errors, none(ranks()));
    const auto in_order = [&](int owner, std::size_t i) {
      double sum = parts[(owner + 1) % ranks()][i];
      for (int k = 2; k <= ranks(); ++k) sum += parts[(owner + k) % ranks()][i];
      return sum;
    };
    for (int rank = 0; rank < ranks(); ++rank) {
      const std::size_t r = rank;
      for (std::size_t i = r * row; i < (r + 1) * row; ++i) ASSERT_EQ(scattered[r][i], in_order(rank, i));
      EXPECT_TRUE(rank == root || reduced[r] == parts[r]) << "only root's data may change";
    }
    for (std::size_t i = 0; i < row * count(); ++i) {
      ASSERT_EQ(reduced[root][i], in_order(root, i));
    }
  }
}

TEST_P(Collectives, BroadcastAndAllGatherCopy) {
  for (const std::size_t row : {0u, 1u, 77u, 100003u}) {
    TestWorld world(ranks());
    std::vector<std::vector<float>> gathered(count()), broadcast(count());
    const int root = ranks() / 2;
    const auto errors = world.run([&](int rank, Communicator& communicator) {
      const std::size_t r = rank;
      gathered[r].assign(row * count(), -1);
      for (std::size_t i = 0; i < row; ++i) gathered[r][r * row + i] = static_cast<float>(r * row + i);
      communicator.all_gather(rows_of(gathered[r], ranks()));
      broadcast[r].assign(row, static_cast<float>(rank));
      communicator.broadcast(view_of(broadcast[r]), root);
    });
    EXPECT_EQ(errors, none(ranks()));
    std::vector<float> expected(row * count());
    std::iota(expected.begin(), expected.end(), 0.0f);
    for (std::size_t r = 0; r < count(); ++r) {
      EXPECT_TRUE(gathered[r] == expected);
      EXPECT_TRUE(broadcast[r] == std::vector<float>(row, static_cast<float>(root)));
    }
  }
}

// Elements passed from i to j: (i + 2 j) mod 4, of which some counts are 0 for few ranks.
std::int64_t passed(int from, int to) {
  return (from + 2 * to) % 4;
}

struct Exchange {
  std::vector<std::int64_t> send_counts, receive_counts;
  std::int64_t sent = 0, received = 0;
  Exchange(int rank, int ranks) {
    for (int other = 0; other < ranks; ++other) {
      send_counts.push_back(passed(rank, other));
      receive_counts.push_back(passed(other, rank));
      sent += send_counts.back();
      received += receive_counts.back();
    }
  }
};

TEST_P(Collectives, AllToAllPassesEachPartToItsReceiver) {
  TestWorld world(ranks());
  std::vector<std::vector<std::int32_t>> received(count());
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    const Exchange exchange(rank, ranks());
    std::vector<std::int32_t> send;
    for (int to = 0; to < ranks(); ++to) {
      for (int i = 0; i < passed(rank, to); ++i) send.push_back(100 * rank + 10 * to + i);
    }
    auto& mine = received[rank];
    mine.assign(exchange.received, -1);
    communicator.wait(communicator.start_all_to_all(view_of(send), exchange.send_counts, view_of(mine),
                                                    exchange.receive_counts));
  });
  EXPECT_EQ(errors, none(ranks()));
  for (int rank = 0; rank < ranks(); ++rank) {
    std::vector<std::int32_t> expected;
    for (int from = 0; from < ranks(); ++from) {
      for (int i = 0; i < passed(from, rank); ++i) expected.push_back(100 * from + 10 * rank + i);
    }
    EXPECT_EQ(received[rank], expected);
  }
}

// <F x, y> = <x, F' y> over all ranks' memory, for F = broadcast, all-gather, all-to-all and F' their
// adjoints.
TEST_P(Collectives, AdjointIdentitiesHold) {
  constexpr std::size_t kRow = 501;
  TestWorld world(ranks());
  std::vector<double> left(3), right(3);
  std::mutex mutex;
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    const std::size_t r = rank;
    const unsigned seed = static_cast<unsigned>(rank) * 10;
    const auto add = [&](std::size_t pair, double forward, double backward) {
      const std::lock_guard lock(mutex);
      left[pair] += forward;
      right[pair] += backward;
    };
    // broadcast from root: x is on root; its adjoint is the sum onto root.
    const int root = ranks() - 1;
    const auto x = normal_values(kRow, seed), y = normal_values(kRow, seed + 1);
    auto fx = x, fy = y;
    communicator.broadcast(view_of(fx), root);
    communicator.wait(communicator.start_reduce(view_of(fy), root, ReduceOp::kSum));
    add(0, dot(fx, y), rank == root ? dot(x, fy) : 0);

    // all-gather: x is one row per rank; its adjoint is reduce-scatter.
    const auto gathered_y = normal_values(kRow * count(), seed + 2);
    std::vector<double> gathered(kRow * count()), scattered = gathered_y;
    std::copy(x.begin(), x.end(), gathered.begin() + static_cast<std::ptrdiff_t>(r * kRow));
    communicator.all_gather(rows_of(gathered, ranks()));
    communicator.wait(communicator.start_reduce_scatter(rows_of(scattered, ranks()), ReduceOp::kSum));
    const auto own = scattered.begin() + static_cast<std::ptrdiff_t>(r * kRow);
    add(1, dot(gathered, gathered_y), dot(x, std::vector<double>(own, own + kRow)));

    // all-to-all: its adjoint is the all-to-all with the counts exchanged.
    const Exchange exchange(rank, ranks());
    auto send = normal_values(static_cast<std::size_t>(exchange.sent), seed + 3);
    auto back = normal_values(static_cast<std::size_t>(exchange.received), seed + 4);
    std::vector<double> forward(back.size()), backward(send.size());
    communicator.wait(communicator.start_all_to_all(view_of(send), exchange.send_counts, view_of(forward),
                                                    exchange.receive_counts));
    communicator.wait(communicator.start_all_to_all(view_of(back), exchange.receive_counts, view_of(backward),
                                                    exchange.send_counts));
    add(2, dot(forward, back), dot(send, backward));
  });
  EXPECT_EQ(errors, none(ranks()));
  // Sums of at most 4 x 4 x 501 products of unit normals, each rounded: far below 1e-10.
  for (std::size_t pair = 0; pair < 3; ++pair) EXPECT_NEAR(left[pair], right[pair], 1e-10) << pair;
}

TEST_P(Collectives, TrafficEqualsTheClosedForms) {
  const auto k = static_cast<std::uint64_t>(ranks());
  const std::size_t row = 160;  // whole lines for every chunk
  TestWorld world(ranks());
  const std::uint64_t bytes = row * k * sizeof(float);
  std::vector<LinkCounts> counts(count());
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<float> data(row * count());
    LinkCounts before = communicator.counts();
    const auto expect_sent = [&](const char* what, std::uint64_t expected_bytes,
                                 std::uint64_t expected_messages) {
      const LinkCounts after = communicator.counts();
      EXPECT_EQ(after.bytes_sent - before.bytes_sent, expected_bytes) << what << " on rank " << rank;
      EXPECT_EQ(after.messages_sent - before.messages_sent, expected_messages) << what << " on rank " << rank;
      EXPECT_EQ(after.operations - before.operations, 1u);
      before = after;
    };
    communicator.all_reduce(view_of(data), ReduceOp::kSum);
    expect_sent("all_reduce", 2 * bytes * (k - 1) / k, 2 * (k - 1));
    communicator.wait(communicator.start_reduce_scatter(rows_of(data, ranks()), ReduceOp::kSum));
    expect_sent("reduce_scatter", bytes * (k - 1) / k, k - 1);
    communicator.all_gather(rows_of(data, ranks()));
    expect_sent("all_gather", bytes * (k - 1) / k, k - 1);
    communicator.broadcast(view_of(data), 0);
    expect_sent("broadcast", rank == ranks() - 1 ? 0 : bytes, rank == ranks() - 1 ? 0 : k - 1);
    communicator.wait(communicator.start_reduce(view_of(data), 0, ReduceOp::kSum));
    expect_sent("reduce", rank == 0 ? 0 : bytes, rank == 0 ? 0 : k - 1);
    communicator.barrier();
    expect_sent("barrier", 0, 2 * (k - 1));
    const Exchange exchange(rank, ranks());
    std::vector<float> send(exchange.sent), receive(static_cast<std::size_t>(exchange.received));
    communicator.wait(communicator.start_all_to_all(view_of(send), exchange.send_counts, view_of(receive),
                                                    exchange.receive_counts));
    std::uint64_t elements = 0, messages = 0;
    for (int to = 0; to < ranks(); ++to) {
      if (to == rank) continue;
      elements += static_cast<std::uint64_t>(passed(rank, to));
      messages += passed(rank, to) > 0;
    }
    expect_sent("all_to_all", 4 * elements, messages);
    std::vector<float> odd(1003);
    communicator.all_reduce(view_of(odd), ReduceOp::kSum);
    expect_sent("uneven all_reduce", all_reduce_traffic(1003, DType::kF32, rank, ranks()).bytes, 2 * (k - 1));
    counts[rank] = communicator.counts();
  });
  EXPECT_EQ(errors, none(ranks()));
  for (int rank = 0; rank < ranks(); ++rank) {  // totals outlive the communicators, by purpose
    const LinkCounts totals = world.transport().counts(rank, Purpose::kGradient);
    EXPECT_EQ(totals.bytes_sent, counts[rank].bytes_sent);
    EXPECT_EQ(totals.operations, counts[rank].operations);
    EXPECT_EQ(world.transport().counts(rank, Purpose::kModel).operations, 0u);
  }
}

TEST_P(Collectives, ManyInFlightMayBeWaitedForInAnyOrder) {
  constexpr int kOperations = 40;
  TestWorld world(ranks());
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<std::vector<float>> data;
    std::vector<Request> requests;
    for (int i = 0; i < kOperations; ++i)
      data.push_back(std::vector<float>(100, static_cast<float>(i + rank)));
    for (auto& tensor : data)
      requests.push_back(communicator.start_all_reduce(view_of(tensor), ReduceOp::kSum));
    std::vector<int> order(kOperations);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank)));
    for (const int i : order) communicator.wait(requests[i]);
    for (int i = 0; i < kOperations; ++i) {
      const auto expected = static_cast<float>(i * ranks() + ranks() * (ranks() - 1) / 2);
      EXPECT_EQ(data[i], std::vector<float>(100, expected));
    }
  });
  EXPECT_EQ(errors, none(ranks()));
}

TEST_P(Collectives, PollingEnds) {
  TestWorld world(ranks());
  const auto errors = world.run([&](int rank, Communicator& communicator) {
    std::vector<float> data(300000, static_cast<float>(rank + 1));
    const Request request = communicator.start_all_reduce(view_of(data), ReduceOp::kSum);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!communicator.done(request)) {
      ASSERT_LT(std::chrono::steady_clock::now(), limit);
      std::this_thread::yield();
    }
    communicator.wait(request);
    EXPECT_EQ(data.back(), static_cast<float>(ranks() * (ranks() + 1) / 2));
  });
  EXPECT_EQ(errors, none(ranks()));
}

TEST(CollectivesUnderNoise, GiveTheSameBitsEveryTime) {
  constexpr int kRanks = 4, kRepetitions = 30;
  std::set<std::string> results;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    TestWorld world(kRanks);
    std::vector<std::vector<double>> values;
    for (unsigned rank = 0; rank < kRanks; ++rank) values.push_back(normal_values(70001, rank));
    const auto errors = world.run([&](int rank, Communicator& communicator) {
      auto& mine = values[rank];
      std::mt19937 noise(static_cast<unsigned>(repetition * kRanks + rank));
      for (int round = 0; round < 3; ++round) {
        std::this_thread::sleep_for(std::chrono::microseconds(noise() % 300));
        const Request request = communicator.start_all_reduce(view_of(mine), ReduceOp::kSum);
        std::this_thread::sleep_for(std::chrono::microseconds(noise() % 300));
        communicator.wait(request);
        for (double& x : mine) x *= 0.3;
      }
    });
    ASSERT_EQ(errors, none(kRanks));
    for (const auto& mine : values) {
      results.emplace(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
    }
  }
  EXPECT_EQ(results.size(), 1u);
}

}  // namespace
}  // namespace tenon::thread_transport
