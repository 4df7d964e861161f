// The loss scale's state machine against tables computed by hand from the two published rules.
#include "scaler.hpp"

#include <tenon/error.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenon::fp16::scaler_test {
namespace {

struct Table {
  const char* name;
  ScalerSettings settings;
  const char* slots;             ///< 'o' good, 'x' overflow
  std::vector<double> expected;  ///< the scale after each slot
};

/// Uses growth interval 3 in place of 2000 and 1000.
ScalerSettings small(ScalerKind kind, double init, std::int64_t hysteresis = 1) {
  ScalerSettings settings;
  settings.kind = kind;
  settings.init = init;
  settings.interval = 3;
  settings.hysteresis = hysteresis;
  settings.patience = 0;
  return settings;
}

class LossScaler : public ::testing::TestWithParam<Table> {};

TEST_P(LossScaler, P42_FollowsTheHandTable) {
  const Table& table = GetParam();
  Scaler scaler(table.settings);
  std::vector<double> found;
  for (const char slot : std::string(table.slots)) {
    scaler.update(slot == 'x');
    found.push_back(scaler.scale());
  }
  EXPECT_EQ(found, table.expected) << table.slots;
}

const Table kTables[] = {
    // {inf, ok x interval, inf, inf}
    {"A_TheSequenceOfTheSheet", small(ScalerKind::kPytorch, 64), "xoooxx", {32, 32, 32, 64, 32, 16}},
    // An overflow resets the count; so does growth.
    {"A_CountsAnew", small(ScalerKind::kPytorch, 64), "ooxooooo", {64, 64, 32, 32, 32, 64, 64, 64}},
    {"A_StopsAtTheFloor", small(ScalerKind::kPytorch, 4), "xxxxooo", {2, 1, 1, 1, 1, 1, 2}},
    // Hysteresis 2: the first overflow only counts; growth restores both.
    {"B_TheSequenceOfTheSheet", small(ScalerKind::kMegatron, 64, 2), "xoooxx", {64, 64, 64, 128, 128, 64}},
    // Only growth restores spent hysteresis: later overflows shrink at once, also after good slots.
    {"B_StaysSpentUntilGrowth",
     small(ScalerKind::kMegatron, 64, 2),
     "xxoxooox",
     {64, 32, 32, 16, 16, 16, 32, 32}},
    {"B_GoodSlotsDoNotRefill", small(ScalerKind::kMegatron, 64, 2), "xoox", {64, 64, 64, 32}},
    {"B_StopsAtTheFloor", small(ScalerKind::kMegatron, 2, 2), "xxxx", {2, 1, 1, 1}},
    {"StaticStays", small(ScalerKind::kStatic, 8), "xoooxx", {8, 8, 8, 8, 8, 8}},
    {"NoneIsOne", small(ScalerKind::kNone, 1), "xoooxx", {1, 1, 1, 1, 1, 1}},
};
INSTANTIATE_TEST_SUITE_P(Tables, LossScaler, ::testing::ValuesIn(kTables),
                         [](const auto& info) { return std::string(info.param.name); });

std::string error_of(Scaler& scaler, int overflows) {
  for (int i = 0; i < overflows; ++i) {
    try {
      scaler.update(true);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kRun);
      return std::to_string(i + 1) + ": " + error.what();
    }
  }
  return "";
}

TEST(LossScalerFloor, EndsTheRunWithAdvice) {
  ScalerSettings settings = small(ScalerKind::kPytorch, 4);
  settings.patience = 3;
  Scaler floor(settings);
  EXPECT_EQ(
      error_of(floor, 100),
      "5: gradients were not finite in 3 slots in a row although the loss scale is at its floor, 1: a "
      "smaller "
      "scale would not help. Lower optimizer.lr, set run.clip or a longer warm-up, or train with precision "
      "\"bf16\"; if gradients themselves exceed 65504, lower precision.min_scale");
  settings.kind = ScalerKind::kStatic;
  Scaler fixed(settings);
  EXPECT_EQ(error_of(fixed, 100),
            "3: gradients were not finite in 3 slots in a row under the static loss scale 4. Lower "
            "precision.scale, "
            "or set precision.loss_scale = \"dynamic\"");
}

TEST(LossScalerFloor, GoodSlotsBetweenAreForgiven) {
  ScalerSettings settings = small(ScalerKind::kPytorch, 1);
  settings.patience = 3;
  settings.interval = 1000000;
  Scaler scaler(settings);
  for (int i = 0; i < 50; ++i) {
    scaler.update(true);
    scaler.update(true);
    scaler.update(false);
  }
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScalerFloor, GrowthEndsBeforeFloat32Does) {
  ScalerSettings settings = small(ScalerKind::kPytorch, 65536);
  settings.interval = 1;
  Scaler scaler(settings);
  for (int i = 0; i < 1000; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 0x1p96);
}

}  // namespace
}  // namespace tenon::fp16::scaler_test
