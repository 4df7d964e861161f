// Every collective of a transport of processes: the bits of reduce_in_order for all types and operations,
// sizes from empty to several parts, counts of the closed forms, concurrent operations.
#include "process_world.hpp"

#include <tenon/sdk/fixed_order.hpp>
#include <tenon/sdk/traffic.hpp>

#include <cstring>
#include <mutex>
#include <random>

namespace tenon::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kReducible[] = {DType::kF32,  DType::kF64, DType::kBF16, DType::kF16, DType::kC64,
                                DType::kC128, DType::kI8,  DType::kU8,   DType::kI16, DType::kU16,
                                DType::kI32,  DType::kU32, DType::kI64,  DType::kU64, DType::kBool};

bool reducible(DType dtype, ReduceOp op) {
  return text_of([&] { check_reducible(dtype, op); }).empty();
}

// Random bits, except that no float is NaN or huge and a bool is 0 or 1: fixed_order_test covers NaNs.
Bytes random_bytes(DType dtype, std::int64_t elements, int rank, unsigned seed) {
  std::mt19937 engine(seed * 977 + static_cast<unsigned>(rank));
  Bytes bytes(static_cast<std::size_t>(dtype_bytes(dtype, elements)));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(engine());
  const std::size_t width = dtype_bits(dtype) / 8;
  for (std::size_t i = 0; i + width <= bytes.size(); i += width) {
    if (dtype == DType::kBool) bytes[i] &= std::byte{1};
    if (dtype_is_complex(dtype)) bytes[i + width / 2 - 1] &= std::byte{0xbf};
    if (dtype_is_real(dtype) || dtype_is_complex(dtype)) bytes[i + width - 1] &= std::byte{0xbf};
  }
  return bytes;
}

// out = the parts from member `owner` + 1 upwards, elements [begin, end).
void expect_sum(Bytes& out, const std::vector<Bytes>& parts, int owner, ElementRange range, DType dtype,
                ReduceOp op) {
  std::vector<const void*> inputs;
  const std::size_t offset = dtype_bytes(dtype, range.begin);
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const int source = ring_source(owner, static_cast<int>(k), static_cast<int>(parts.size()));
    inputs.push_back(parts[source].data() + offset);
  }
  reduce_in_order(inputs, out.data() + offset, range.size(), dtype, op);
}

struct Counted {
  LinkCounts before;
  Communicator& communicator;
  explicit Counted(Communicator& c) : before(c.counts()), communicator(c) {}
  void expect(const Traffic& traffic) const {
    const LinkCounts now = communicator.counts();
    EXPECT_EQ(now.bytes_sent - before.bytes_sent, traffic.bytes);
    EXPECT_EQ(now.messages_sent - before.messages_sent, traffic.messages);
    EXPECT_EQ(now.operations - before.operations, 1u);
  }
};

class ProcessCollectives : public ::testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ProcessCollectives, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(ProcessCollectives, ReductionsHaveTheBitsOfTheFixedOrderAndTheCountsOfTheClosedForms) {
  const auto world = make_process_world(ranks());
  const auto errors = world->run([&](int rank, Communicator& communicator) {
    unsigned seed = 0;
    for (const DType dtype : kReducible) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
        if (!reducible(dtype, op) || !world->reduces(dtype)) continue;
        for (const std::int64_t row : {0, 1, 5, 333}) {
          const std::int64_t elements = row * ranks() + (row == 5 ? 3 : 0);
          std::vector<Bytes> parts;
          ++seed;
          for (int r = 0; r < ranks(); ++r) parts.push_back(random_bytes(dtype, elements, r, seed));
          Bytes expected(parts[0].size()), mine = parts[rank];
          for (int chunk = 0; chunk < ranks(); ++chunk)
            expect_sum(expected, parts, chunk, ring_chunk(elements, dtype, chunk, ranks()), dtype, op);
          const Counted all(communicator);
          communicator.all_reduce({mine.data(), Shape{elements}, dtype}, op);
          all.expect(all_reduce_traffic(elements, dtype, rank, ranks()));
          ASSERT_TRUE(mine == expected) << dtype_name(dtype) << " " << elements;

          const int root = static_cast<int>(seed) % ranks();
          mine = parts[rank];
          expect_sum(expected, parts, root, {0, elements}, dtype, op);
          const Counted reduced(communicator);
          communicator.wait(communicator.start_reduce({mine.data(), Shape{elements}, dtype}, root, op));
          reduced.expect(reduce_traffic(static_cast<std::int64_t>(mine.size()), rank, root, ranks()));
          ASSERT_TRUE(mine == (rank == root ? expected : parts[rank]));

          const std::int64_t whole = row * ranks();
          const std::size_t bytes = dtype_bytes(dtype, row);
          mine = parts[rank];
          expect_sum(expected, parts, rank, {row * rank, row * (rank + 1)}, dtype, op);
          const Counted scattered(communicator);
          communicator.wait(communicator.start_reduce_scatter({mine.data(), Shape{ranks(), row}, dtype}, op));
          scattered.expect(row_ring_traffic(dtype_bytes(dtype, whole), ranks()));
          ASSERT_EQ(bytes == 0 ? 0
                               : std::memcmp(mine.data() + bytes * static_cast<std::size_t>(rank),
                                             expected.data() + bytes * static_cast<std::size_t>(rank), bytes),
                    0);
        }
      }
    }
  });
  EXPECT_EQ(errors, none(ranks()));
}

TEST_P(ProcessCollectives, LargeTensorsGoInParts) {
  const std::size_t elements =
      300007 + 64 * 1024;  // parts that end inside chunks, chunks that end inside parts
  const auto world = make_process_world(ranks());
  std::vector<std::vector<double>> parts;
  for (int rank = 0; rank < ranks(); ++rank) {
    std::mt19937 engine(static_cast<unsigned>(rank));
    std::normal_distribution<double> normal;
    auto& part = parts.emplace_back(elements);
    for (double& x : part) x = normal(engine);
  }
  std::vector<double> expected(elements);
  const auto count = static_cast<std::int64_t>(elements);
  for (int chunk = 0; chunk < ranks(); ++chunk) {
    const ElementRange range = ring_chunk(count, DType::kF64, chunk, ranks());
    std::vector<const void*> inputs;
    for (int k = 0; k < ranks(); ++k)
      inputs.push_back(parts[ring_source(chunk, k, ranks())].data() + range.begin);
    reduce_in_order(inputs, expected.data() + range.begin, range.size(), DType::kF64, ReduceOp::kSum);
  }
  const auto errors = world->run([&](int rank, Communicator& communicator) {
    auto mine = parts[rank];
    communicator.all_reduce(view_of(mine), ReduceOp::kSum);
    EXPECT_TRUE(mine == expected);
    mine = parts[rank];
    const int root = ranks() / 2;
    communicator.wait(communicator.start_reduce(view_of(mine), root, ReduceOp::kSum));
    EXPECT_TRUE(rank == root || mine == parts[rank]);
    communicator.broadcast(view_of(mine), root);
    double first = parts[(root + 1) % ranks()][0];
    for (int k = 2; k <= ranks(); ++k) first += parts[(root + k) % ranks()][0];
    EXPECT_EQ(mine[0], first);
    std::vector<double> rows(elements * static_cast<std::size_t>(ranks()));
    std::copy(parts[rank].begin(), parts[rank].end(),
              rows.begin() + static_cast<std::ptrdiff_t>(elements) * rank);
    communicator.all_gather(rows_of(rows, ranks()));
    for (std::size_t r = 0; r < parts.size(); ++r)
      EXPECT_EQ(std::memcmp(rows.data() + r * elements, parts[r].data(), 8 * elements), 0);
  });
  EXPECT_EQ(errors, none(ranks()));
}

TEST_P(ProcessCollectives, CopiesCarryEveryTypeAndCountTheirBytes) {
  const auto world = make_process_world(ranks());
  const auto errors = world->run([&](int rank, Communicator& communicator) {
    for (const DType dtype : {DType::kF32, DType::kF8E4M3, DType::kF4E2M1, DType::kF6E2M3, DType::kC128}) {
      for (const std::int64_t row : {0, 4, 256, 4000}) {
        std::vector<Bytes> parts;
        for (int r = 0; r < ranks(); ++r)
          parts.push_back(random_bytes(DType::kU8, dtype_bytes(dtype, row), r, 3));
        Bytes rows(parts[0].size() * parts.size());
        const auto bytes = static_cast<std::int64_t>(parts[0].size());
        std::copy(parts[rank].begin(), parts[rank].end(), rows.begin() + bytes * rank);
        const Counted gathered(communicator);
        communicator.all_gather({rows.data(), Shape{ranks(), row}, dtype});
        gathered.expect(row_ring_traffic(bytes * ranks(), ranks()));
        for (int r = 0; r < ranks(); ++r) {
          const Bytes found(rows.begin() + bytes * r, rows.begin() + bytes * (r + 1));
          ASSERT_TRUE(found == parts[r]);
        }
        const int root = static_cast<int>(row) % ranks();
        Bytes mine = parts[rank];
        const Counted sent(communicator);
        communicator.broadcast({mine.data(), Shape{row}, dtype}, root);
        sent.expect(broadcast_traffic(bytes, rank, root, ranks()));
        ASSERT_TRUE(mine == parts[root]);
      }
    }
    const Counted empty(communicator);
    communicator.barrier();
    empty.expect(barrier_traffic(ranks()));
  });
  EXPECT_EQ(errors, none(ranks()));
}

TEST_P(ProcessCollectives, AllToAllPassesEachPartToItsReceiver) {
  const auto world = make_process_world(ranks());
  const auto passed = [](int from, int to) { return std::int64_t{(from + 2 * to) % 4} * 40000; };
  const auto errors = world->run([&](int rank, Communicator& communicator) {
    std::vector<std::int64_t> send_counts, receive_counts;
    std::vector<std::int32_t> send, expected;
    for (int other = 0; other < ranks(); ++other) {
      send_counts.push_back(passed(rank, other));
      receive_counts.push_back(passed(other, rank));
      for (int i = 0; i < passed(rank, other); ++i) send.push_back(10000000 * rank + 1000000 * other + i);
      for (int i = 0; i < passed(other, rank); ++i) expected.push_back(10000000 * other + 1000000 * rank + i);
    }
    std::vector<std::int32_t> receive(expected.size(), -1);
    const Counted counted(communicator);
    communicator.wait(
        communicator.start_all_to_all(view_of(send), send_counts, view_of(receive), receive_counts));
    counted.expect(all_to_all_traffic(send_counts, DType::kI32, rank));
    EXPECT_TRUE(receive == expected);
  });
  EXPECT_EQ(errors, none(ranks()));
}

TEST_P(ProcessCollectives, SeveralAreInFlightInSeveralGroups) {
  const auto world = make_process_world(ranks());
  constexpr std::size_t kOperations = 40;
  const auto errors = world->run([&](int rank, Communicator& communicator) {
    const auto other = world->open(rank, "other");
    std::mt19937 engine(static_cast<unsigned>(rank));
    std::vector<std::vector<std::int32_t>> sums, rows;
    for (std::size_t i = 0; i < kOperations; ++i) {
      sums.emplace_back(1000 * i, rank + static_cast<int>(i));
      rows.emplace_back(70 * i * world->all().size(), rank);
    }
    std::vector<Request> first, second;
    for (std::size_t i = 0; i < kOperations; ++i) {
      if (engine() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(engine() % 500));
      first.push_back(communicator.start_all_reduce(view_of(sums[i]), ReduceOp::kSum));
      second.push_back(other->start_all_gather(rows_of(rows[i], ranks())));
    }
    std::vector<std::size_t> order(kOperations);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), engine);
    for (const std::size_t i : order) {
      other->wait(second[i]);
      communicator.wait(first[i]);
    }
    for (std::size_t i = 0; i < kOperations; ++i) {
      const int expected = ranks() * (ranks() - 1) / 2 + ranks() * static_cast<int>(i);
      for (const int x : sums[i]) ASSERT_EQ(x, expected);
      for (std::size_t k = 0; k < rows[i].size(); ++k)
        ASSERT_EQ(rows[i][k], static_cast<int>(k / (rows[i].size() / world->all().size())));
    }
    EXPECT_EQ(world->counts(rank, Purpose::kGradient).operations, 2 * kOperations);
  });
  EXPECT_EQ(errors, none(ranks()));
}

TEST(ProcessMessages, MatchBySenderAndTagInOrder) {
  const auto world = make_process_world(3);
  const auto errors = world->run([&](int rank, Communicator& communicator) {
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
    data.reserve(3);
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

TEST(ProcessMessages, EveryoneExchangesWithEveryoneAndWithItself) {
  constexpr int kRanks = 4, kRounds = 6;
  const auto world = make_process_world(kRanks);
  const auto errors = world->run([&](int rank, Communicator& communicator) {
    std::uint64_t bytes = 0;
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t count = round == 5 ? 50001 : static_cast<std::size_t>(round) * 100;
      std::vector<std::vector<double>> out(kRanks, std::vector<double>(count, rank + 0.5 * round));
      std::vector<std::vector<double>> in(kRanks, std::vector<double>(count));
      std::vector<Request> requests;
      for (int other = 0; other < kRanks; ++other) {
        const std::size_t o = other;
        requests.push_back(communicator.start_send(view_of(out[o]), other, round));
        requests.push_back(communicator.start_receive(view_of(in[o]), other, round));
        if (other != rank) bytes += 8 * count;
      }
      for (const Request request : requests) communicator.wait(request);
      for (int other = 0; other < kRanks; ++other)
        EXPECT_EQ(in[other], std::vector<double>(count, other + 0.5 * round));
    }
    EXPECT_EQ(communicator.counts().messages_sent, 3u * kRounds);
    EXPECT_EQ(communicator.counts().bytes_sent, bytes);
  });
  EXPECT_EQ(errors, none(kRanks));
}

}  // namespace
}  // namespace tenon::testing
