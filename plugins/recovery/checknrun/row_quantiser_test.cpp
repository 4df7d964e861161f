// Errors of quantised rows, including rows that are difficult for the arithmetic.
#include "row_testing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace tenon::recovery_checknrun {
namespace {

using ::testing::ElementsAreArray;
using Limits = std::numeric_limits<float>;

double l2_error(const Row& row, const Row& other) {
  long double sum = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const long double off = static_cast<long double>(row[i]) - other[i];
    sum += off * off;
  }
  return static_cast<double>(std::sqrt(sum));
}

/// range / (2 (2^bits - 1)) + 2 ulp of the greatest magnitude (P24).
double element_bound(const Row& row, int bits) {
  const auto [low, high] = std::minmax_element(row.begin(), row.end());
  const float greatest = std::max(std::fabs(*low), std::fabs(*high));
  const double ulp = std::ldexp(1.0, std::max(std::ilogb(std::max(greatest, Limits::min())), -126) - 23);
  return (static_cast<double>(*high) - *low) / (2 * ((1 << bits) - 1)) + 2 * ulp;
}

Row random_row(std::mt19937_64& random, std::size_t width, const std::function<float()>& element) {
  Row row(width + random() % 3);
  for (float& value : row) value = element();
  return row;
}

/// Rows of many kinds, the same ones in each run.
std::vector<Row> rows_to_try() {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> flat(-1, 1);
  std::student_t_distribution<float> heavy(2);
  const auto any_finite = [&] {
    for (;;) {
      const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (std::isfinite(value)) return value;
    }
  };
  const std::function<float()> kinds[] = {
      [&] { return normal(random); },
      [&] { return 0.01F * flat(random); },
      [&] { return 1000 + flat(random); },
      [&] { return 1 + 1e-6F * flat(random); },  // a few ulp wide
      [&] { return heavy(random); },
      [&] { return std::max(0.0F, normal(random)); },
      [&] { return random() % 2 == 0 ? 3.0F : -2.0F; },
      [&] { return static_cast<float>(random() % 5); },
      any_finite,
      [&] { return Limits::max() * flat(random); },
      [&] { return Limits::denorm_min() * static_cast<float>(random() % 1000); },
      [&] { return -Limits::denorm_min() * static_cast<float>(random() % 3); },
      [&] { return Limits::min() * flat(random); },
  };
  const float big = Limits::max(), least = Limits::denorm_min();
  std::vector<Row> rows = {{0, 1},
                           {-1, 0, 1},
                           {1, std::nextafter(1.0F, 2.0F)},
                           {-0.0F, 0.0F},
                           {-0.0F, 1},
                           {big, -big},
                           {big, -big, 0},
                           {big, big / 2},
                           {big, std::nextafter(big, 0.0F)},
                           {0, least},
                           {0, least, 4 * least},
                           {-least, least},
                           {big, least},
                           {-big, least, 0},
                           {Limits::min(), least},
                           {0, 380 * least},
                           {0, 382 * least, 200 * least},
                           {0, 22 * least},
                           {0, 0, 0, 0, 0, 0, 0, 100},
                           {-100, 0, 0, 0, 0, 0, 0, 0}};
  for (int i = 0; i < 100; ++i) rows.push_back({big, big * flat(random)});  // steps that lead past big
  for (const std::function<float()>& kind : kinds) {
    for (const std::size_t width : {1U, 2U, 7U, 16U, 64U, 129U}) {
      for (int i = 0; i < 20; ++i) rows.push_back(random_row(random, width, kind));
    }
  }
  return rows;
}

TEST(RowQuantiser, P24_ElementErrorWithinHalfAStep) {
  for (const Row& row : rows_to_try()) {
    for (const int bits : kWidths) {
      const Row back = decoded(row, bits, RowFit::kUniform);
      const double bound = element_bound(row, bits);
      for (std::size_t i = 0; i < row.size(); ++i) {
        ASSERT_LE(std::fabs(static_cast<double>(back[i]) - row[i]), bound)
            << bits << " bits, element " << i << " of " << ::testing::PrintToString(row);
      }
    }
  }
}

TEST(RowQuantiser, P24_AdaptiveIsNeverWorseInL2) {
  int better = 0;
  const std::vector<Row> rows = rows_to_try();
  for (const Row& row : rows) {
    for (const int bits : kWidths) {
      const double uniform = l2_error(row, decoded(row, bits, RowFit::kUniform));
      const double adaptive = l2_error(row, decoded(row, bits, RowFit::kAdaptive));
      ASSERT_LE(adaptive, uniform) << bits << " bits, " << ::testing::PrintToString(row);
      better += bits <= 4 && adaptive < uniform ? 1 : 0;
    }
  }
  EXPECT_GT(better, static_cast<int>(rows.size())) << "of three per row";
}

TEST(RowQuantiser, P24_ConstantRowsAreExact) {
  const float least = Limits::denorm_min(), big = Limits::max();
  for (const float value :
       {0.0F, -0.0F, 1.0F, -0.1F, 3.14159F, least, -least, 5 * least, Limits::min(), big, -big}) {
    for (const std::size_t width : {1U, 3U, 64U}) {
      const Row row(width, value);
      for (const int bits : kWidths) {
        for (const RowFit fit : kFits) {
          EXPECT_THAT(bits_of(decoded(row, bits, fit)), ElementsAreArray(bits_of(row)))
              << value << " " << bits;
        }
      }
    }
  }
}

// Clipping an outlier by half of the range costs less than twice the step for all other elements.
TEST(RowQuantiser, AdaptiveCutsOutliersOff) {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  double uniform = 0, adaptive = 0;
  for (int i = 0; i < 200; ++i) {
    Row row(64);
    for (float& value : row) value = normal(random);
    uniform += std::pow(l2_error(row, decoded(row, 2, RowFit::kUniform)), 2);
    adaptive += std::pow(l2_error(row, decoded(row, 2, RowFit::kAdaptive)), 2);
  }
  EXPECT_LT(std::sqrt(adaptive / uniform), 0.75);  // 0.715 measured
  EXPECT_GT(std::sqrt(adaptive / uniform), 0.65);

  for (const float sign : {1.0F, -1.0F}) {  // either end
    Row row(200);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = sign * static_cast<float>(i % 11);
    row[0] = sign * 16;
    EXPECT_LT(l2_error(row, decoded(row, 2, RowFit::kAdaptive)),
              0.8 * l2_error(row, decoded(row, 2, RowFit::kUniform)));
  }
}

TEST(RowQuantiser, AdaptiveKeepsTheWholeRangeWhereItCannotWin) {
  for (const Row& row : {Row{0, 1, 2, 3}, Row{-3, 0, 3, 6}, Row{5, 5, 5}}) {
    EXPECT_EQ(encoded(row, 2, RowFit::kAdaptive), encoded(row, 2, RowFit::kUniform));
  }
  // Without the last 32nd of the range all but one element would be on the grid.
  Row row(2000);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i % 256 * 31);
  row[0] = 32 * 255;
  EXPECT_EQ(encoded(row, 8, RowFit::kAdaptive), encoded(row, 8, RowFit::kUniform))
      << "not searched for 8 bits";
}

}  // namespace
}  // namespace tenon::recovery_checknrun
