// The arithmetic of fixed order against an independent simulation of a ring, and the closed forms of traffic
// against the messages that this ring sends.
#include <tenon/sdk/fixed_order.hpp>

#include <tenon/sdk/traffic.hpp>

#include <tenon/error.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace tenon {
namespace {

TEST(RingChunk, CoversTheTensorInWholeLines) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kC128, DType::kI8}) {
    const std::int64_t line = 512 / dtype_bits(dtype);
    for (const std::int64_t elements : {0, 1, 5, 16, 17, 63, 64, 65, 1000, 12345}) {
      for (int members = 1; members <= 7; ++members) {
        std::int64_t end = 0, smallest = elements, largest = 0;
        for (int chunk = 0; chunk < members; ++chunk) {
          const ElementRange range = ring_chunk(elements, dtype, chunk, members);
          ASSERT_EQ(range.begin, end);
          ASSERT_TRUE(range.begin % line == 0 || range.begin == elements);
          end = range.end;
          smallest = std::min(smallest, range.size());
          largest = std::max(largest, range.size());
        }
        ASSERT_EQ(end, elements);
        EXPECT_LT(largest - smallest, 2 * line) << elements << " by " << members;
      }
    }
  }
}

TEST(RingChunk, DoesNotOverflow) {
  const std::int64_t huge = std::int64_t{1} << 60;
  EXPECT_EQ(ring_chunk(huge, DType::kF32, 2, 4).begin, huge / 2);
  EXPECT_EQ(ring_chunk(huge, DType::kF32, 3, 4).end, huge);
}

// A ring as a network would run it, one message at a time: what it leaves and what it sends are the
// specification.
struct Ring {
  std::vector<std::vector<float>> memory;
  std::vector<Traffic> sent;

  explicit Ring(std::vector<std::vector<float>> parts) : memory(std::move(parts)), sent(memory.size()) {}

  void all_reduce() {
    const int members = static_cast<int>(memory.size());
    const auto elements = static_cast<std::int64_t>(memory[0].size());
    for (int phase = 0; phase < 2; ++phase) {
      for (int step = 0; step < members - 1; ++step) {
        for (int rank = 0; rank < members; ++rank) {
          const int chunk = (rank - 1 + phase - step + 2 * members) % members;
          const int to = (rank + 1) % members;
          const ElementRange range = ring_chunk(elements, DType::kF32, chunk, members);
          for (std::size_t i = range.begin; i < static_cast<std::size_t>(range.end); ++i) {
            auto& target = memory[to][i];
            const float arriving = memory[rank][i];
            target = phase == 0 ? arriving + target : arriving;
          }
          sent[rank].bytes += static_cast<std::uint64_t>(range.size()) * 4;
          ++sent[rank].messages;
        }
      }
    }
  }
};

std::vector<std::vector<float>> random_parts(int members, std::size_t elements) {
  std::mt19937 engine(static_cast<unsigned>(elements) + static_cast<unsigned>(members));
  std::normal_distribution<float> normal(0, 100);
  std::vector<std::vector<float>> parts(members, std::vector<float>(elements));
  for (auto& part : parts) {
    for (float& x : part) x = normal(engine);
  }
  return parts;
}

TEST(FixedOrder, GivesTheBitsAndTheTrafficOfARing) {
  for (int members = 1; members <= 5; ++members) {
    for (const std::size_t elements : {0u, 1u, 15u, 64u, 333u, 5000u}) {
      const auto parts = random_parts(members, elements);
      Ring ring(parts);
      ring.all_reduce();
      std::vector<float> reduced(elements);
      for (int chunk = 0; chunk < members; ++chunk) {
        const auto range = ring_chunk(static_cast<std::int64_t>(elements), DType::kF32, chunk, members);
        std::vector<const void*> inputs;
        for (int position = 0; position < members; ++position) {
          inputs.push_back(parts[ring_source(chunk, position, members)].data() + range.begin);
        }
        reduce_in_order(inputs, reduced.data() + range.begin, range.size(), DType::kF32, ReduceOp::kSum);
      }
      for (int rank = 0; rank < members; ++rank) {
        const std::size_t r = rank;
        ASSERT_EQ(ring.memory[r], reduced) << members << " members, " << elements << " elements";
        const Traffic closed =
            all_reduce_traffic(static_cast<std::int64_t>(elements), DType::kF32, rank, members);
        EXPECT_EQ(closed.bytes, ring.sent[r].bytes);
        EXPECT_EQ(closed.messages, ring.sent[r].messages);
      }
    }
  }
}

TEST(FixedOrder, EqualChunksGiveTheFormulaOfThePapers) {
  for (const int members : {2, 3, 4, 8}) {
    const std::int64_t elements = 16 * members * 10;
    const auto bytes = static_cast<std::uint64_t>(elements) * 4;
    for (int rank = 0; rank < members; ++rank) {
      EXPECT_EQ(all_reduce_traffic(elements, DType::kF32, rank, members).bytes,
                2 * bytes * static_cast<std::uint64_t>(members - 1) / static_cast<std::uint64_t>(members));
    }
  }
}

TEST(FixedOrder, OutputMayBeAnyInput) {
  const auto parts = random_parts(3, 5000);
  std::vector<float> expected(5000);
  const void* inputs[] = {parts[0].data(), parts[1].data(), parts[2].data()};
  reduce_in_order(inputs, expected.data(), 5000, DType::kF32, ReduceOp::kSum);
  for (std::size_t target = 0; target < 3; ++target) {
    auto copy = parts;
    const void* copies[] = {copy[0].data(), copy[1].data(), copy[2].data()};
    reduce_in_order(copies, copy[target].data(), 5000, DType::kF32, ReduceOp::kSum);
    EXPECT_EQ(copy[target], expected);
  }
}

template <typename T>
T reduced(DType dtype, ReduceOp op, std::vector<T> values) {
  std::vector<const void*> inputs;
  for (const T& value : values) inputs.push_back(&value);
  T out{};
  reduce_in_order(inputs, &out, 1, dtype, op);
  return out;
}

TEST(FixedOrder, CombinesEveryType) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(reduced<double>(DType::kF64, ReduceOp::kSum, {1e16, 1, -1e16}), 0);
  EXPECT_EQ(reduced<double>(DType::kF64, ReduceOp::kSum, {1e16, -1e16, 1}), 1);
  EXPECT_EQ(reduced<float>(DType::kF32, ReduceOp::kMax, {-3, 7, 2}), 7);
  EXPECT_EQ(reduced<float>(DType::kF32, ReduceOp::kMin, {-3, 7, 2}), -3);
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum}) {
    EXPECT_TRUE(std::isnan(reduced<float>(DType::kF32, op, {kNan, 1, 2})));
    EXPECT_TRUE(std::isnan(reduced<float>(DType::kF32, op, {1, kNan, 2})));
    EXPECT_TRUE(std::isnan(reduced<float>(DType::kF32, op, {1, 2, kNan})));
  }
  EXPECT_EQ(reduced<std::int8_t>(DType::kI8, ReduceOp::kSum, {127, 1}), -128);
  EXPECT_EQ(reduced<std::int64_t>(DType::kI64, ReduceOp::kSum, {std::numeric_limits<std::int64_t>::max(), 1}),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reduced<std::uint16_t>(DType::kU16, ReduceOp::kMax, {1, 65535}), 65535);
  EXPECT_EQ(reduced<std::uint8_t>(DType::kBool, ReduceOp::kMax, {0, 1, 0}), 1);
  EXPECT_EQ(reduced<std::uint8_t>(DType::kBool, ReduceOp::kMin, {1, 1, 0}), 0);
  using Complex = std::complex<float>;
  EXPECT_EQ(reduced<Complex>(DType::kC64, ReduceOp::kSum, {{1, 2}, {3, 4}}), Complex(4, 6));
  EXPECT_EQ(reduced<std::complex<double>>(DType::kC128, ReduceOp::kSum, {{1, 2}, {3, 5}}),
            std::complex<double>(4, 7));
}

std::uint16_t bf16(float x) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >>
                                    16);  // of values that bf16 holds exactly
}

TEST(FixedOrder, RoundsBf16OncePerHopToNearestEven) {
  // 256 + 1 is between 256 and 258: each hop returns to the even 256, though the f32 sum would be 258.
  EXPECT_EQ(reduced<std::uint16_t>(DType::kBF16, ReduceOp::kSum, {bf16(256), bf16(1), bf16(1)}), bf16(256));
  EXPECT_EQ(reduced<std::uint16_t>(DType::kBF16, ReduceOp::kSum, {bf16(1), bf16(1), bf16(256)}), bf16(258));
  EXPECT_EQ(reduced<std::uint16_t>(DType::kBF16, ReduceOp::kSum, {bf16(258), bf16(1)}), bf16(260));
  EXPECT_EQ(reduced<std::uint16_t>(DType::kBF16, ReduceOp::kSum, {0x7f80, 0xff80}) & 0x7fffu,
            0x7fc0u);                                                                         // inf - inf
  EXPECT_EQ(reduced<std::uint16_t>(DType::kBF16, ReduceOp::kSum, {0x7f7f, 0x7f7f}), 0x7f80);  // overflow
}

TEST(FixedOrder, Float16ConvertsEveryValueAndRoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const bool nan = (bits & 0x7fffu) > 0x7c00u;
    const std::uint16_t back = reduced<std::uint16_t>(DType::kF16, ReduceOp::kMax, {half, half});
    ASSERT_EQ(back, nan ? half | 0x0200u : half);
  }
  const auto sum = [](std::uint16_t a, std::uint16_t b) {
    return reduced<std::uint16_t>(DType::kF16, ReduceOp::kSum, {a, b});
  };
  EXPECT_EQ(sum(0x6800, 0x3c00), 0x6800);  // 2048 + 1 ties to 2048
  EXPECT_EQ(sum(0x6801, 0x3c00), 0x6802);  // 2050 + 1 ties to 2052
  EXPECT_EQ(sum(0x7bff, 0x4c00), 0x7c00);  // 65504 + 16 overflows
  EXPECT_EQ(sum(0x7bff, 0x4b80), 0x7bff);  // 65504 + 15 does not
  EXPECT_EQ(sum(0x0001, 0x0001), 0x0002);  // subnormals
  EXPECT_EQ(sum(0x03ff, 0x0001), 0x0400);
}

TEST(FixedOrder, RefusesWhatHasNoMeaning) {
  struct Case {
    DType dtype;
    ReduceOp op;
  };
  for (const Case& c : {Case{DType::kC64, ReduceOp::kMax}, Case{DType::kBool, ReduceOp::kSum},
                        Case{DType::kF8E4M3, ReduceOp::kSum}, Case{DType::kF4E2M1, ReduceOp::kMax}}) {
    EXPECT_THROW(check_reducible(c.dtype, c.op), Error) << dtype_name(c.dtype);
  }
}

TEST(LinkModel, FollowsTheClosedForms) {
  const LinkSpec link{.bandwidth_bits_per_s = 8e6, .latency_s = 0.25, .jitter_s = 0};  // 1e6 bytes/s
  const auto expect = [](LinkTime time, double transfer, double latency) {
    EXPECT_DOUBLE_EQ(time.transfer_s, transfer);
    EXPECT_DOUBLE_EQ(time.latency_s, latency);
  };
  expect(all_reduce_time(link, 4e6, 4), 6.0, 1.5);
  expect(row_ring_time(link, 4e6, 4), 3.0, 0.75);
  expect(chain_time(link, 3e6, 4), 5.0, 1.25);
  expect(chain_time(link, 3e6, 2), 3.0, 0.25);
  expect(all_to_all_time(link, 2e6, 3), 2.0, 0.5);
  expect(barrier_time(link, 3), 0, 1.0);
  for (const int one : {1}) {
    expect(all_reduce_time(link, 4e6, one), 0, 0);
    expect(chain_time(link, 4e6, one), 0, 0);
  }
  expect(all_reduce_time({.bandwidth_bits_per_s = 0, .latency_s = 0.25, .jitter_s = 0}, 4e6, 2), 0, 0.5);
}

TEST(LinkModel, JitterIsAPureFunctionWithinItsBounds) {
  const LinkSpec link{.bandwidth_bits_per_s = 0, .latency_s = 0, .jitter_s = 0.5};
  const int ranks[] = {0, 1};
  const int others[] = {0, 2};
  const std::uint64_t stream = jitter_stream("replicas", ranks);
  EXPECT_NE(stream, jitter_stream("replicas", others));
  EXPECT_NE(stream, jitter_stream("axis0", ranks));
  double sum = 0;
  for (std::uint64_t operation = 0; operation < 1000; ++operation) {
    const double jitter = link_jitter(link, 1, stream, operation);
    EXPECT_EQ(jitter, link_jitter(link, 1, stream, operation));
    ASSERT_GE(jitter, 0);
    ASSERT_LT(jitter, 0.5);
    sum += jitter;
  }
  EXPECT_NEAR(sum / 1000, 0.25, 5 * 0.5 / std::sqrt(12.0 * 1000));
  EXPECT_NE(link_jitter(link, 1, stream, 1), link_jitter(link, 2, stream, 1));
}

}  // namespace
}  // namespace tenon
