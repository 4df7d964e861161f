// A short dip passes unseen; a long one exhausts the capacitors; energy is kept.
#include "supercap.hpp"

#include <tenon/testing/power.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

using supercap::Supercap;
using tenon::testing::answers;
using tenon::testing::make_policy;

std::vector<double> dips(int samples) {
  std::vector<double> load;
  for (int i = 0; i < 40000; ++i) load.push_back(i % 2000 < samples ? 200.0 : 700.0);
  return load;
}

TEST(Supercap, DipsOfTensOfMillisecondsAreFilled) {
  const auto made = make_policy<Supercap>("seconds = 1.0");
  const auto out = answers(*made, {1e-3, 700, 1}, dips(40));  // 20 J
  double low = 1e9, high = 0;
  for (std::size_t i = 20000; i < out.size(); ++i)
    low = std::min(low, out[i].watts), high = std::max(high, out[i].watts);
  EXPECT_LT(high - low, 0.1 * 500);
}

TEST(Supercap, DipsOfHalfASecondAreTooLong) {
  const auto made = make_policy<Supercap>("seconds = 1.0");
  const auto out = answers(*made, {1e-3, 700, 1}, dips(500));
  EXPECT_TRUE(std::any_of(out.begin(), out.end(), [](const auto& answer) { return answer.violation; }));
}

TEST(Supercap, StoredEnergyIsTheDifference) {
  const auto made = make_policy<Supercap>("seconds = 0.3");
  const auto load = dips(500);
  const auto out = answers(*made, {1e-3, 700, 1}, load);
  double difference = 0;
  for (std::size_t i = 0; i < out.size(); ++i) difference += (out[i].watts - load[i]) * 1e-3;
  EXPECT_NEAR(difference, out.back().charge_j - 32.5, 1e-6);
}

}  // namespace
