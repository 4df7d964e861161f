// Reuse distances against a list that is searched, and shares of power laws against sums.
#include <tenon/sdk/reuse_distance.hpp>

#include <tenon/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <random>
#include <vector>

namespace reuse_distance_test {
namespace {

using namespace tenon;

/// Rows, newest first.
class PlainDistances {
 public:
  std::int64_t access(std::int64_t row) {
    std::int64_t distance = 0;
    for (auto at = newest_.begin(); at != newest_.end(); ++at, ++distance) {
      if (*at != row) continue;
      newest_.erase(at);
      newest_.push_front(row);
      return distance;
    }
    newest_.push_front(row);
    return ReuseDistances::kFirst;
  }

 private:
  std::list<std::int64_t> newest_;
};

TEST(ReuseDistances, T4_EveryDistanceIsThatOfAList) {
  for (const std::int64_t rows : {1, 2, 3, 7, 64, 300}) {
    ReuseDistances distances(rows);
    PlainDistances plain;
    std::vector<std::int64_t> counts(rows);
    std::mt19937 random(static_cast<unsigned>(rows));
    std::int64_t accesses = 0;
    for (int phase = 0; phase < 20; ++phase) {
      // Phases of few rows and of all, so that times are renumbered with few and with all rows in use.
      const std::int64_t span = phase % 3 == 0 ? rows : std::max<std::int64_t>(1, rows / (phase + 1));
      for (int i = 0; i < 400; ++i, ++accesses) {
        const auto row = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(span));
        const std::int64_t expected = plain.access(row);
        ASSERT_EQ(distances.access(row), expected) << rows << " rows, access " << accesses;
        if (expected != ReuseDistances::kFirst) ++counts[expected];
      }
    }
    EXPECT_EQ(distances.accesses(), accesses);
    std::vector<std::int64_t> histogram(distances.histogram().begin(), distances.histogram().end());
    ASSERT_LE(histogram.size(), counts.size());
    histogram.resize(counts.size());
    EXPECT_EQ(histogram, counts);
    std::vector<std::int64_t> sizes, hits;
    for (std::int64_t lines = 0; lines <= rows + 1; ++lines) {
      sizes.push_back(lines);
      std::int64_t below = 0;
      for (std::int64_t d = 0; d < std::min(lines, rows); ++d) below += counts[d];
      hits.push_back(below);
    }
    EXPECT_EQ(distances.hits(sizes), hits);
  }
}

template <typename Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ReuseDistances, OtherRowsAreRefused) {
  ReuseDistances distances(10);
  EXPECT_THAT(refusal([&] { distances.access(10); }),
              ::testing::HasSubstr("row 10 is not one of the 10 rows"));
  EXPECT_THAT(refusal([&] { distances.access(-1); }),
              ::testing::HasSubstr("row -1 is not one of the 10 rows"));
  EXPECT_THAT(refusal([] { ReuseDistances(std::int64_t{1} << 31); }),
              ::testing::HasSubstr("2147483648 rows"));
  EXPECT_EQ(distances.accesses(), 0);
}

TEST(PowerLawShare, IsTheSumOverRows) {
  for (const double exponent : {0.0, 0.5, 0.8, 1.0, 1.0 + 1e-12, 1.05, 1.2, 2.0, 3.5}) {
    constexpr std::int64_t kRows = 1000;
    std::vector<long double> until{0};
    for (std::int64_t k = 1; k <= kRows; ++k) {
      // Simpson's rule over [k, k + 1) in 256 pieces.
      constexpr int kPieces = 256;
      long double sum = 0;
      for (int i = 0; i <= kPieces; ++i) {
        const long double weight = i == 0 || i == kPieces ? 1 : i % 2 == 1 ? 4 : 2;
        sum +=
            weight * std::pow(k + static_cast<long double>(i) / kPieces, -static_cast<long double>(exponent));
      }
      until.push_back(until.back() + sum / (3 * kPieces));
    }
    for (const std::int64_t first : {0, 1, 2, 20, 200, 999, 1000}) {
      EXPECT_NEAR(power_law_share(kRows, first, exponent), static_cast<double>(until[first] / until[kRows]),
                  1e-9)
          << first << " rows, exponent " << exponent;
    }
  }
  EXPECT_DOUBLE_EQ(power_law_share(std::int64_t{1} << 40, std::int64_t{1} << 40, 1.05), 1);
}

TEST(PowerLawShare, OtherNumbersAreRefused) {
  for (const auto& [rows, first, exponent] : std::vector<std::tuple<std::int64_t, std::int64_t, double>>{
           {0, 0, 1}, {5, 6, 1}, {5, -1, 1}, {5, 1, -1}, {5, 1, NAN}}) {
    EXPECT_THROW(power_law_share(rows, first, exponent), Error) << rows << " " << first << " " << exponent;
  }
}

}  // namespace
}  // namespace reuse_distance_test
