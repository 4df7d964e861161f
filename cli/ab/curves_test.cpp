// Plots keep the extremes of curves, and means and differences are taken at common points.
#include "ab/charts.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tenon::ab {
namespace {

Series line(double offset, int step_size, int count) {
  Series out;
  for (int i = 0; i < count; ++i) {
    MetricPoint p;
    p.step = i * step_size;
    p.value = offset + static_cast<double>(p.step);
    p.wall_s = static_cast<double>(p.step) * 0.5;
    out.push_back(p);
  }
  return out;
}

TEST(Curves, BucketsKeepEveryExtreme) {
  std::vector<Point> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({static_cast<double>(i), std::sin(i * 0.01)});
  points[43'210].y = 9;  // one spike up and one down, each a single point
  points[77'777].y = -9;
  const auto reduced = bucket_min_max(points, 0, 99'999, 300);
  EXPECT_LE(reduced.size(), 600u);
  double low = 0, high = 0;
  for (std::size_t i = 0; i < reduced.size(); ++i) {
    low = std::min(low, reduced[i].y);
    high = std::max(high, reduced[i].y);
    EXPECT_TRUE(i == 0 || reduced[i - 1].x < reduced[i].x);
  }
  EXPECT_EQ(high, 9);
  EXPECT_EQ(low, -9);
}

TEST(Curves, GapsSurviveBuckets) {
  std::vector<Point> points;
  for (int i = 0; i < 1000; ++i) points.push_back({static_cast<double>(i), i == 500 ? NAN : 1.0 * i});
  const auto reduced = bucket_min_max(points, 0, 999, 10);
  EXPECT_TRUE(std::any_of(reduced.begin(), reduced.end(), [](const Point& p) { return std::isnan(p.y); }));
}

TEST(Curves, ShortInputsAreUnchanged) {
  const std::vector<Point> points{{0, 1}, {1, 2}};
  EXPECT_EQ(bucket_min_max(points, 0, 1, 10).size(), 2u);
  EXPECT_EQ(bucket_min_max(points, 0, 0, 1).size(), 2u);
  EXPECT_TRUE(bucket_min_max({}, 0, 1, 10).empty());
}

TEST(Curves, SharedGridIsUsedExactly) {
  const Series a = line(1, 10, 5), b = line(3, 10, 5);
  const auto mean = mean_curve({&a, &b}, Axis::kSteps, 0.05);
  ASSERT_EQ(mean.size(), 5u);
  EXPECT_EQ(mean[2].x, 20);
  EXPECT_EQ(mean[2].y.mean, 22);
  const auto difference = difference_curve({&a}, {&b}, Axis::kSteps, 0.05);
  ASSERT_EQ(difference.size(), 5u);
  EXPECT_EQ(difference[4].y.mean, 2);
}

TEST(Curves, DifferentGridsAreInterpolatedWhereAllHaveValues) {
  const Series a = line(0, 10, 6), b = line(0, 7, 5);  // to 50 and to 28
  const auto difference = difference_curve({&a, &a}, {&b, &b}, Axis::kSteps, 0.05);
  ASSERT_EQ(difference.size(), kInterpolated);
  EXPECT_EQ(difference.back().x, 28);
  for (const auto& p : difference) EXPECT_NEAR(p.y.mean, 0, 1e-12);
  EXPECT_TRUE(mean_curve({}, Axis::kSteps, 0.05).empty());
  const Series none;
  EXPECT_TRUE(mean_curve({&a, &none}, Axis::kSteps, 0.05).empty());
}

}  // namespace
}  // namespace tenon::ab
