// Signs with a scale against loops in double: bits, losses and means exactly from the scale that was written,
// and the scale itself within the rounding of its sum.
#include "device_test.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/ops/signs.hpp>

#include <cmath>
#include <limits>

namespace tenon::testing::signs_test {
namespace {

constexpr DType kReals[] = {DType::kF32, DType::kF64};
/// Within a byte and a block of sums, at their ends, and several of them.
constexpr std::int64_t kLengths[] = {1, 7, 8, 1001, 8192, 8193, 100003};

float scale_at(const std::vector<std::uint8_t>& bytes, std::int64_t at) {
  float scale = 0;
  std::memcpy(&scale, bytes.data() + at, sizeof(scale));
  return scale;
}
bool bit_at(const std::vector<std::uint8_t>& bytes, std::int64_t at, std::int64_t i) {
  return (bytes[at + i / 8] >> i % 8 & 1) != 0;
}

class Signs : public OnEveryChoice {
 protected:
  SignOps& ops_ = device_.family<SignOps>();

  Owned scratch_for(std::int64_t elements) {
    return Owned(device_, Shape{static_cast<std::int64_t>(ops_.encode_scratch(elements))}, DType::kU8);
  }

  /// x's bits, from byte 3 on, followed by the scale; and the remainder `lost`, unless the call is in place.
  struct Encoded {
    std::vector<std::uint8_t> row;
    std::vector<double> lost;
    SignPlace place;
    float scale() const { return scale_at(row, place.scale); }
    bool operator==(const Encoded& other) const { return row == other.row && lost == other.lost; }
  };
  Encoded encode(const std::vector<double>& values, DType dtype, bool in_place = false) {
    const auto n = static_cast<std::int64_t>(values.size());
    const std::int64_t bytes = (n + 7) / 8;
    Encoded result;
    result.place = {.scale = 3 + bytes, .bits = 3};
    const Owned x(device_, {n}, dtype, values), lost(device_, {n}, dtype), scratch = scratch_for(n);
    Owned row(device_, {bytes + 9}, DType::kU8);
    row.put(std::vector<std::uint8_t>(bytes + 9, 0xA5));
    expect_no_allocations(device_, [&] { ops_.encode(x, row, result.place, in_place ? x : lost, scratch); });
    result.row = row.elements<std::uint8_t>();
    result.lost = (in_place ? x : lost).values();
    return result;
  }
};

TEST_P(Signs, AreBitsAScaleAndWhatTheyLose) {
  for (const DType dtype : kReals)
    for (const std::int64_t n : kLengths) {
      const auto x = numbers(n, "x", dtype);
      const Encoded found = encode(x, dtype);
      long double sum = 0;
      for (const double value : x) sum += std::abs(static_cast<long double>(value));
      const auto mean = static_cast<double>(sum / static_cast<long double>(n));
      // One rounding to f32, and beside it sums of terms of one sign in f64: each term passes fewer than a
      // hundred of them.
      EXPECT_NEAR(found.scale(), mean, mean * (0x1p-24 + 100 * 0x1p-53)) << n;
      const double scale = found.scale();
      std::vector<double> lost(x.size());
      for (std::int64_t i = 0; i < 8 * ((n + 7) / 8); ++i) {
        const bool negative = i < n && x[i] < 0;
        ASSERT_EQ(bit_at(found.row, found.place.bits, i), negative) << n << ", element " << i;
        if (i < n) lost[i] = x[i] - (negative ? -scale : scale);
      }
      EXPECT_EQ(found.lost, rounded(lost, dtype)) << n;
      for (const std::int64_t outside : {0, 1, 2}) EXPECT_EQ(found.row[outside], 0xA5);
      EXPECT_EQ(found.row[found.row.size() - 2] & found.row.back(), 0xA5) << n;
      EXPECT_TRUE(encode(x, dtype, true) == found) << n << " in place";
    }
}

TEST_P(Signs, NeitherZeroNorNaNIsNegative) {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : kReals) {
    const Encoded zeros = encode({0.0, -0.0, -3.0, 1.0}, dtype);
    EXPECT_EQ(zeros.scale(), 1);
    EXPECT_EQ(zeros.row[3], 0b0100);
    EXPECT_EQ(zeros.lost, (std::vector<double>{-1, -1, -2, 0}));
    for (const double sign : {1.0, -1.0}) {
      const Encoded broken = encode({-1.0, std::copysign(nan, sign), 2.0}, dtype);
      EXPECT_TRUE(std::isnan(broken.scale()));
      EXPECT_EQ(broken.row[3], 0b0001);
    }
    const Encoded endless = encode({1.0, -infinity}, dtype);
    EXPECT_EQ(endless.scale(), infinity);
    EXPECT_EQ(endless.row[3], 0b0010);
  }
}

TEST_P(Signs, AreTheSameForAnyNumberOfThreads) {
  for (const DType dtype : kReals) {
    const auto x = numbers(100003, "x", dtype);
    set_parallel_threads(1);
    const Encoded one = encode(x, dtype);
    for (const int threads : {2, 3, 7}) {
      set_parallel_threads(threads);
      EXPECT_TRUE(encode(x, dtype) == one) << threads;
    }
  }
}

// Rows of two vectors, in their transfer format: both scales, then both vectors' bits.
TEST_P(Signs, OfSeveralMembersAreAddedInTheirOrder) {
  for (const DType dtype : kReals)
    for (const std::int64_t members : {1, 2, 5})
      for (const std::int64_t n : kLengths) {
        const std::int64_t first = 13, bytes = 8 + (first + 7) / 8 + (n + 7) / 8;
        const SignPlace places[] = {{.scale = 0, .bits = 8}, {.scale = 4, .bits = 8 + (first + 7) / 8}};
        Owned rows(device_, {members, bytes}, DType::kU8);
        const Owned scratch = scratch_for(n), mean(device_, {n}, dtype);
        const TensorView all = rows;
        for (std::int64_t k = 0; k < members; ++k) {
          const TensorView row{
              static_cast<std::uint8_t*>(all.data) + k * bytes, {bytes}, DType::kU8, all.space};
          const std::string member = std::to_string(k);
          const Owned a(device_, {first}, dtype, numbers(first, "a" + member, dtype)),
              b(device_, {n}, dtype, numbers(n, "b" + member, dtype));
          ops_.encode(a, row, places[0], {}, scratch);
          ops_.encode(b, row, places[1], {}, scratch);
        }
        expect_no_allocations(device_, [&] { ops_.decode(rows, places[1], mean); });
        const auto travelled = rows.elements<std::uint8_t>();
        std::vector<double> sums(n);
        for (std::int64_t k = 0; k < members; ++k) {
          const double scale = scale_at(travelled, k * bytes + places[1].scale);
          for (std::int64_t i = 0; i < n; ++i)
            sums[i] += bit_at(travelled, k * bytes + places[1].bits, i) ? -scale : scale;
          sums = rounded(sums, dtype);
        }
        const double share = rounded({1.0 / static_cast<double>(members)}, dtype)[0];
        for (double& sum : sums) sum *= share;
        EXPECT_EQ(mean.values(), rounded(sums, dtype)) << members << " of " << n;
      }
}

TEST_P(Signs, OfNothingAreAScaleOfZero) {
  EXPECT_EQ(ops_.encode_scratch(0), 0U);
  Owned row(device_, {1, 4}, DType::kU8);
  row.put(std::vector<std::uint8_t>(4, 0xA5));
  const Owned none(device_, {0}, DType::kF32);
  ops_.encode(none, row, {.scale = 0, .bits = 4}, {}, {});
  EXPECT_EQ(row.elements<std::uint8_t>(), std::vector<std::uint8_t>(4, 0));
  ops_.decode(row, {.scale = 0, .bits = 4}, none);
}

TEST_P(Signs, RefuseWhatDoesNotFit) {
  const std::int64_t n = 100;
  const Owned x(device_, {n}, DType::kF32), wide(device_, {n}, DType::kF64),
      narrow(device_, {n}, DType::kBF16), row(device_, {17}, DType::kU8), rows(device_, {2, 17}, DType::kU8),
      none(device_, {0, 17}, DType::kU8), scratch = scratch_for(n);
  constexpr SignPlace kPlace{.scale = 0, .bits = 4};
  ops_.encode(x, row, kPlace, {}, scratch);
  ops_.decode(rows, kPlace, x);
  const auto encode = [&](TensorView values, TensorView into, SignPlace place, TensorView lost) {
    return message_of([&] { ops_.encode(values, into, place, lost, scratch); });
  };
  const auto decode = [&](TensorView from, SignPlace place, TensorView mean) {
    return message_of([&] { ops_.decode(from, place, mean); });
  };
  EXPECT_NE(encode(narrow, row, kPlace, {}), "");
  EXPECT_NE(encode(x, x, kPlace, {}), "");
  EXPECT_NE(encode(x, row, kPlace, wide), "");
  EXPECT_NE(decode(x, kPlace, x), "");
  EXPECT_NE(decode(rows, kPlace, narrow), "");
  struct Place {
    SignPlace place;
    const char* text;
  };
  const Place places[] = {{{0, 5}, "a scale at byte 0 and, apart from it, 100 bits at byte 5"},
                          {{14, 0}, "a scale at byte 14 and, apart from it, 100 bits at byte 0"},
                          {{-1, 4}, "a scale at byte -1 and, apart from it, 100 bits at byte 4"},
                          {{0, 3}, "a scale at byte 0 and, apart from it, 100 bits at byte 3"},
                          {{12, 0}, "a scale at byte 12 and, apart from it, 100 bits at byte 0"}};
  for (const auto& [place, text] : places) {
    const std::string says = std::string("a row of 17 bytes does not hold ") + text;
    EXPECT_EQ(encode(x, row, place, {}), device_says("encode signs: " + says));
    EXPECT_EQ(decode(rows, place, x), device_says("decode signs: " + says));
  }
  EXPECT_EQ(decode(row, kPlace, x),
            device_says("decode signs: rows must be [members, bytes] of at least one member, found [17]"));
  EXPECT_EQ(decode(none, kPlace, x),
            device_says("decode signs: rows must be [members, bytes] of at least one member, found [0, 17]"));
  EXPECT_EQ(message_of([&] { ops_.encode(x, row, kPlace, {}, {}); }),
            device_says("encode signs: scratch is 0 bytes, expected 8 bytes of the device's memory, as "
                        "encode_scratch says"));
}

INSTANTIATE_TEST_SUITE_P(Device, Signs, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::signs_test
