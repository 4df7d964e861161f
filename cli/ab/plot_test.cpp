// Ticks, ranges, number formats and escaping, where a wrong digit of a report would come from.
#include "ab/plot.hpp"
#include "ab/format.hpp"
#include "ab/svg.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tenon::ab {
namespace {

TEST(Plot, TicksAreRoundAndInside) {
  const struct {
    Range range;
    int count;
    std::vector<double> ticks;
  } cases[] = {{{0, 400}, 8, {0, 50, 100, 150, 200, 250, 300, 350, 400}},
               {{1.93, 2.07}, 6, {1.94, 1.96, 1.98, 2.0, 2.02, 2.04, 2.06}},
               {{-0.01, 0.02}, 3, {-0.01, 0, 0.01, 0.02}}};
  for (const auto& c : cases) {
    const auto got = round_ticks(c.range, c.count);
    ASSERT_EQ(got.size(), c.ticks.size()) << c.range.low;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], c.ticks[i], 1e-12);
  }
}

TEST(Plot, RangesAreNeverEmpty) {
  const std::vector<std::vector<double>> cases{{}, {2.0}, {0, 0}, {NAN}, {1e300, 1e300}, {-3, -3}};
  for (const auto& values : cases) {
    const Range r = range_of(values, 0.05);
    EXPECT_LT(r.low, r.high);
    EXPECT_FALSE(round_ticks(r, 5).empty());
  }
}

TEST(Plot, AxisUnits) {
  EXPECT_EQ(quantity_axis(Axis::kBytes, {0, 1.28e9}).title, "bytes sent (MB)");
  EXPECT_EQ(quantity_axis(Axis::kSteps, {0, 400}).title, "step");
  EXPECT_EQ(quantity_axis(Axis::kTokens, {0, 819'200}).title, "tokens (k)");
  EXPECT_EQ(quantity_axis(Axis::kSeconds, {0, 5e5}).title, "wall time (s)");
}

TEST(Format, Numbers) {
  EXPECT_EQ(fixed(-0.0004, 2), "0.00");
  EXPECT_EQ(fixed(-1.25, 2), "\u22121.25");
  EXPECT_EQ(fixed_signed(0.5, 1), "+0.5");
  EXPECT_EQ(fixed_signed(0.001, 1), "0.0");
  EXPECT_EQ(fixed(INFINITY, 2), "infinite");
  EXPECT_EQ(p_value(0.0625), "0.0625");
  EXPECT_EQ(p_value(0.00001), "< 0.0001");
  EXPECT_EQ(p_value(1), "1");
  EXPECT_EQ(p_value(0.4321), "0.432");
  EXPECT_EQ(quantity(819'200, Axis::kTokens), "819.2 k");
  EXPECT_EQ(quantity(400, Axis::kSteps), "400");
  EXPECT_EQ(quantity(1.28e9, Axis::kBytes), "1.28 GB");
  EXPECT_EQ(quantity(0, Axis::kBytes), "0 B");
  EXPECT_EQ(decimals_for(0.0034), 4);
  EXPECT_EQ(decimals_for(25), 0);
  EXPECT_EQ(decimals_for(0), 4);
}

TEST(Svg, PathsAreDistancesWhoseErrorsDoNotAddUp) {
  Svg svg(100, 50, "chart", "");
  std::vector<Point> points;
  for (int i = 0; i <= 1000; ++i) points.push_back({0.04 * i, i % 2 == 0 ? 10.2 : 9.9});
  svg.polyline(points, "curve", "");
  const std::string text = svg.take();
  const std::size_t begin = text.find(" d=\"") + 4;
  std::string path = text.substr(begin, text.find('"', begin) - begin);
  ASSERT_EQ(path.substr(0, 8), "M0 10.2l");
  path.erase(0, 8);
  // Numbers end before a space, or before a sign.
  double x = 0, y = 10.2;
  const char* at = path.c_str();
  for (int i = 1; i <= 1000; ++i) {
    char* end = nullptr;
    x += std::strtod(at, &end);
    at = end;
    y += std::strtod(at, &end);
    at = end;
    ASSERT_NEAR(x, 0.04 * i, 0.0501) << i;
    ASSERT_NEAR(y, i % 2 == 0 ? 10.2 : 9.9, 1e-9) << i;
  }
  EXPECT_EQ(*at, '\0');
}

TEST(Svg, EscapesAndBreaks) {
  EXPECT_EQ(escape_html("<a href='x'>&\"\x01"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\xEF\xBF\xBD");
  Svg svg(100, 50, "chart", "a < b");
  const std::vector<Point> points{{0, 1}, {1, 2}, {2, NAN}, {3, 4}, {4, 5}};
  svg.polyline(points, "curve", "");
  const std::string text = svg.take();
  EXPECT_THAT(text, ::testing::HasSubstr("M0 1l1 1M3 4l1 1"));
  EXPECT_THAT(text, ::testing::HasSubstr("a &lt; b"));
}

TEST(Svg, PointsFarOutsideTheDrawingAreOrdinaryInput) {
  Svg svg(100, 100, "chart", "far");
  const Point line[] = {{10, 1e300}, {20, -1e300}, {30, 50}};
  svg.polyline(line, "curve", "");
  EXPECT_THAT(svg.take(), ::testing::HasSubstr("d=\"M10 1000000l10-2000000 10 1000050\""));
}

}  // namespace
}  // namespace tenon::ab
