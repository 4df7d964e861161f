// Bands against sums row by row, and against the points of a record.
#include "tables/row_bands.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace tenon::train {
namespace {

std::int64_t rows_of(const RowBands& bands) {
  return std::accumulate(bands.begin(), bands.end(), std::int64_t{0},
                         [](std::int64_t sum, const RowBand& band) { return sum + band.rows; });
}

void expect_falling(const RowBands& bands) {
  for (std::size_t i = 1; i < bands.size(); ++i) {
    EXPECT_LE(bands[i].accesses / static_cast<double>(bands[i].rows),
              bands[i - 1].accesses / static_cast<double>(bands[i - 1].rows) * (1 + 1e-12))
        << "band " << i;
  }
}

TEST(RowBands, OfAPowerLawAreItsSums) {
  for (const double exponent : {0.0, 0.8, 1.0, 1.05, 1.2, 2.0}) {
    for (const std::int64_t rows : {1, 2, 31, 32, 33, 1000, 20001}) {
      const RowBands bands = power_law_bands(rows, exponent);
      EXPECT_EQ(rows_of(bands), rows);
      expect_falling(bands);
      double sum = 0;
      for (std::int64_t k = 1; k <= rows; ++k) sum += std::pow(static_cast<double>(k), -exponent);
      double hottest = 0;
      std::int64_t next = 1;
      for (std::int64_t k = 1; k <= rows; ++k) {
        hottest += std::pow(static_cast<double>(k), -exponent);
        if (k != next && k != rows) continue;
        next += 1 + next / 7;
        EXPECT_NEAR(hottest_accesses(bands, k), hottest / sum, 1e-3 * hottest / sum)
            << exponent << ", " << k << " of " << rows;
      }
    }
  }
  EXPECT_TRUE(power_law_bands(0, 1).empty());
}

TEST(RowBands, OfABillionRowsAreFew) {
  const RowBands bands = power_law_bands(1000000000, 1);
  EXPECT_LT(bands.size(), 400u);
  EXPECT_EQ(rows_of(bands), 1000000000);
  // Harmonic numbers: log(n) + 0.5772156649 + 1 / 2n.
  EXPECT_NEAR(hottest_accesses(bands, 1000000),
              (std::log(1e6) + 0.5772156649 + 0.5e-6) / (std::log(1e9) + 0.5772156649), 1e-4);
}

TableFacts recorded() {
  TableFacts table{.name = "emb.0.weight", .dtype = "f32", .rows = 1000, .width = 4, .bytes = 16000};
  table.placement.push_back({.rank = 0,
                             .first = 0,
                             .last = 1000,
                             .accesses = 10000,
                             .touched = 600,
                             .share_of_1_percent = 0.5,
                             .share_of_10_percent = 0.9,
                             .hottest = {{7, 2000}, {3, 1000}}});
  return table;
}

TEST(RowBands, OfARecordMeetItsPoints) {
  const RowBands bands = recorded_bands(recorded(), 0, 1000);
  expect_falling(bands);
  EXPECT_EQ(rows_of(bands), 600);
  EXPECT_DOUBLE_EQ(hottest_accesses(bands, 1), 2000);
  EXPECT_DOUBLE_EQ(hottest_accesses(bands, 2), 3000);
  EXPECT_NEAR(hottest_accesses(bands, 10), 5000, 1e-6);
  EXPECT_NEAR(hottest_accesses(bands, 100), 9000, 1e-6);
  EXPECT_NEAR(hottest_accesses(bands, 600), 10000, 1e-6);
  EXPECT_NEAR(hottest_accesses(bands, 1000), 10000, 1e-6);
  // 1 / k from row 11 to row 100: half of these rows take clearly more than half of their accesses.
  EXPECT_GT(hottest_accesses(bands, 55) - 5000, 0.6 * 4000);
  EXPECT_LT(hottest_accesses(bands, 55) - 5000, 4000 * std::log(55.5 / 10.5) / std::log(100.5 / 10.5) + 1e-6);
}

TEST(RowBands, OfAnotherShardAreThoseOfTheTableThinnedOut) {
  TableFacts table = recorded();
  table.placement.push_back(table.placement.front());  // a copy counts once
  table.placement.back().rank = 1;
  const RowBands bands = recorded_bands(table, 0, 500);
  expect_falling(bands);
  EXPECT_EQ(rows_of(bands), 300);
  EXPECT_NEAR(hottest_accesses(bands, 300), 5000, 1e-6);
  EXPECT_NEAR(hottest_accesses(bands, 50), 4500, 20);
}

TEST(RowBands, OfPartsAreThoseOfTheirRange) {
  TableFacts table = recorded();
  table.placement.front().last = 600;
  table.placement.push_back({.rank = 1,
                             .first = 600,
                             .last = 1000,
                             .accesses = 400,
                             .touched = 400,
                             .share_of_1_percent = 0.01,
                             .share_of_10_percent = 0.1,
                             .hottest = {{601, 1}, {602, 1}}});
  EXPECT_NEAR(hottest_accesses(recorded_bands(table, 600, 1000), 400), 400, 1e-9);
  EXPECT_NEAR(hottest_accesses(recorded_bands(table, 600, 1000), 40), 40, 1e-9);
  const RowBands all = recorded_bands(table, 0, 1000);
  expect_falling(all);
  EXPECT_NEAR(hottest_accesses(all, 1000), 10400, 1e-6);
  EXPECT_DOUBLE_EQ(hottest_accesses(all, 2), 3000);
}

TEST(RowBands, OfAnImpossibleRecordFallAllTheSame) {
  TableFacts table = recorded();
  table.placement.front().hottest = {{1, 10}, {2, 5000}, {3, 4}};
  table.placement.front().share_of_1_percent = 0.1;
  table.placement.front().share_of_10_percent = 0.05;
  const RowBands bands = recorded_bands(table, 0, 1000);
  expect_falling(bands);
  EXPECT_LE(rows_of(bands), 1000);
  EXPECT_TRUE(recorded_bands(table, 0, 0).empty());
}

}  // namespace
}  // namespace tenon::train
