// The tier `half`: what rounding keeps, that it has no bias, and that it depends on the row and its new
// values alone.
#include <tenon/error.hpp>
#include <tenon/registry.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/tier.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

namespace tenon::tier_half {
namespace {

constexpr std::int64_t kRows = 10000, kWide = 11;

class HalfTier : public ::testing::Test {
 protected:
  HalfTier() {
    registry_.discover({});
    use("");
  }
  void use(std::string_view options) { tier_ = testing::make<Tier>(registry_, host_, "half", options); }
  static RowMemorySpec spec() {
    return {.table = "emb.0.weight", .first = 5, .last = 5 + kRows, .width = kWide, .seed = 3};
  }

  Registry registry_;
  testing::QuietHost host_;
  testing::Made<Tier> tier_;
};

std::vector<std::int64_t> all_ids() {
  std::vector<std::int64_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), std::int64_t{5});
  return ids;
}

void write(RowMemory& memory, std::span<const std::int64_t> ids, const std::vector<float>& values) {
  memory.write(ids, reinterpret_cast<const std::byte*>(values.data()));
}

std::vector<std::uint32_t> bits(const RowMemory& memory, std::span<const std::int64_t> ids,
                                bool scan = false) {
  std::vector<std::uint32_t> all(ids.size() * kWide);
  auto* const out = reinterpret_cast<std::byte*>(all.data());
  scan ? memory.scan(ids, out) : memory.read(ids, out);
  return all;
}

/// Values that are no bf16.
std::vector<float> values_of(std::size_t rows) {
  std::vector<float> values(rows * kWide);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i)) * 3;
  return values;
}

TEST_F(HalfTier, KeepsWhatABf16Is) {
  const auto memory = tier_->allocate(spec());
  const std::int64_t id = 7;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> row = {0.f,   -0.f, 1.f,       -1.5f,    0x1p-133f, 0x1.fep127f,
                                  -kInf, kInf, 3.140625f, 0x1p100f, 2.f};
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::vector<float> mine = row;
    mine[10] = static_cast<float>(seed);
    write(*memory, {&id, 1}, mine);
    for (std::size_t j = 0; j < mine.size(); ++j)
      ASSERT_EQ(bits(*memory, {&id, 1})[j], std::bit_cast<std::uint32_t>(mine[j])) << j;
  }
  EXPECT_EQ(bits(*memory, {&id, 1}, true), bits(*memory, {&id, 1}));
}

TEST_F(HalfTier, KeepsTheKindOfNumbers) {
  const auto memory = tier_->allocate(spec());
  const std::vector<std::int64_t> ids = all_ids();
  std::vector<float> rows(kRows * kWide);
  for (std::size_t i = 0; i < rows.size(); i += 3) {
    rows[i] = std::bit_cast<float>(0x7f800001u);  // its payload is in the bits that are dropped
    if (i + 1 < rows.size()) rows[i + 1] = std::numeric_limits<float>::max();
    if (i + 2 < rows.size()) rows[i + 2] = -std::numeric_limits<float>::max();
  }
  write(*memory, ids, rows);
  const auto found = bits(*memory, ids);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto value = std::bit_cast<float>(found[i]);
    ASSERT_EQ(std::isnan(value), std::isnan(rows[i])) << i;
    ASSERT_FALSE(std::isinf(value)) << i;
  }
}

// Of 10^4 roundings of x the mean is x within three standard errors, which are those of a coin between the
// two neighbours: over rows, and over writes of one row beside which other elements change.
TEST_F(HalfTier, T9_RoundingHasNoBias) {
  const auto memory = tier_->allocate(spec());
  const std::vector<std::int64_t> ids = all_ids();
  for (const float x : {1.001f, -1.001f, 0.3f, 1000.7f, 1e-40f, -2.9999f, 1.0039061f}) {
    const auto bits_of_x = std::bit_cast<std::uint32_t>(x);
    const double low = std::bit_cast<float>(bits_of_x & 0xffff0000u);
    const double high = std::bit_cast<float>((bits_of_x & 0xffff0000u) + 0x10000u);
    const double up = (x - low) / (high - low);
    const double error = std::abs(high - low) * std::sqrt(up * (1 - up) / kRows);
    write(*memory, ids, std::vector<float>(kRows * kWide, x));
    const auto found = bits(*memory, ids);
    for (const std::size_t column : {0, 1, 7, 8, 10}) {
      double sum = 0;
      for (std::size_t row = 0; row < kRows; ++row) {
        const double value = std::bit_cast<float>(found[row * kWide + column]);
        ASSERT_TRUE(value == low || value == high) << value;
        sum += value;
      }
      EXPECT_NEAR(sum / kRows, x, 3 * error) << "column " << column;
    }
    double sum = 0;
    std::vector<float> row(kWide, x);
    for (std::int64_t count = 0; count < kRows; ++count) {
      row[4] = static_cast<float>(count);
      write(*memory, {&ids[9], 1}, row);
      sum += std::bit_cast<float>(bits(*memory, {&ids[9], 1})[0]);
    }
    EXPECT_NEAR(sum / kRows, x, 3 * error) << "one row";
  }
}

TEST_F(HalfTier, T9_DrawsDependOnSeedTableRowAndValuesAlone) {
  const std::vector<std::int64_t> ids = all_ids();
  const std::vector<float> values = values_of(kRows);
  const auto alone = tier_->allocate(spec());
  write(*alone, ids, values);
  const auto expected = bits(*alone, ids);

  // Another order, several threads, other rows before, another shard, values elsewhere in memory.
  std::vector<float> elsewhere(1);
  elsewhere.insert(elsewhere.end(), values.begin(), values.end());
  const auto threaded = tier_->allocate(spec());
  write(*threaded, ids, std::vector<float>(kRows * kWide, 5.f));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = kRows; i-- > 0;) {
        if (i % 4 != t) continue;
        threaded->write({&ids[i], 1}, reinterpret_cast<const std::byte*>(&elsewhere[1 + i * kWide]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bits(*threaded, ids), expected);

  // What a checkpoint gives back, and a checkpoint of f32 rows.
  const auto restored = tier_->allocate(spec());
  restored->fill(ids, reinterpret_cast<const std::byte*>(expected.data()));
  EXPECT_EQ(bits(*restored, ids), expected);
  restored->fill(ids, reinterpret_cast<const std::byte*>(values.data()));
  EXPECT_EQ(bits(*restored, ids), expected);

  const auto differs = [&](const RowMemorySpec& other) {
    const auto memory = tier_->allocate(other);
    std::vector<std::int64_t> theirs = ids;
    for (std::int64_t& id : theirs) id += other.first - 5;
    write(*memory, theirs, values);
    const auto found = bits(*memory, theirs);
    std::size_t count = 0;
    for (std::size_t i = 0; i < found.size(); ++i) count += found[i] != expected[i] ? 1 : 0;
    return static_cast<double>(count) / static_cast<double>(found.size());
  };
  RowMemorySpec other = spec();
  EXPECT_EQ(differs(other), 0);
  other.rank = 3;
  EXPECT_EQ(differs(other), 0);
  other.seed = 4;
  EXPECT_NEAR(differs(other), 1.0 / 3, 0.02) << "two coins of probability u differ by 2 u (1 - u)";
  other = spec();
  other.table = "emb.1.weight";
  EXPECT_NEAR(differs(other), 1.0 / 3, 0.02);
  other = spec();
  other.state = "optimizer.sum";
  EXPECT_NEAR(differs(other), 1.0 / 3, 0.02);
  other = spec();
  other.first += 1;
  other.last += 1;
  EXPECT_NEAR(differs(other), 1.0 / 3, 0.02);
}

TEST_F(HalfTier, LiesOverAnotherTier) {
  EXPECT_EQ(tier_->host_bytes(spec()), kRows * kWide * 2);
  const auto plain = tier_->allocate(spec());
  write(*plain, all_ids(), values_of(kRows));
  use("over = { type = \"dram\", huge_pages = false }");
  EXPECT_EQ(tier_->host_bytes(spec()), kRows * kWide * 2);
  const auto over = tier_->allocate(spec());
  write(*over, all_ids(), values_of(kRows));
  EXPECT_EQ(bits(*over, all_ids()), bits(*plain, all_ids()));
  EXPECT_EQ(over->query(DeviceRows::kId), nullptr);
  EXPECT_EQ(over->query(TierCounts::kId), nullptr);
}

TEST_F(HalfTier, RefusesOtherTypes) {
  RowMemorySpec mine = spec();
  mine.dtype = DType::kF64;
  try {
    tier_->allocate(mine);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(
        error.what(),
        ::testing::HasSubstr("row table 'emb.0.weight': tier 'half' stores f32 rows as bf16; these are f64"));
  }
}

}  // namespace
}  // namespace tenon::tier_half
