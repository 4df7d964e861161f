// Measurements and state of sites: histories of delayed scales, amax agreed over ranks, the worst weights.
#include "high_precision_fallback.hpp"
#include "operand.hpp"
#include "testing.hpp"

#include <tenon/clock.hpp>
#include <tenon/transport.hpp>

#include <gtest/gtest.h>

#include <thread>

namespace tenon::quantized {
namespace {

using testing::Bench;
using testing::Rig;
using testing::site_info;
using testing::TestHost;
using testing::Values;

class MeasureTest : public ::testing::Test {
 protected:
  Bench bench{"cpu", "reference", 1};
};

TEST_F(MeasureTest, AHistoryGivesTheSameScaleInAllCallsOfASlot) {
  TestHost host(*bench.device, 1);
  SitePlan plan;
  plan.history = 2;
  AmaxHistory history(host, "x", plan);
  EXPECT_EQ(history.scale_amax(3, 0, true), 3) << "nothing is known yet: its own";
  EXPECT_EQ(history.scale_amax(5, 0, true), 5);
  EXPECT_EQ(history.scale_amax(1, 1, true), 5) << "the largest of slot 0";
  EXPECT_EQ(history.scale_amax(9, 1, true), 5) << "what this slot shows is for the next";
  EXPECT_EQ(history.scale_amax(100, 1, false), 5) << "an evaluation leaves no trace";
  EXPECT_EQ(history.scale_amax(1, 2, true), 9);
  EXPECT_EQ(history.scale_amax(1, 5, true), 9) << "slots without a forward do not count";
  EXPECT_EQ(history.scale_amax(1, 6, true), 1) << "two slots are remembered";
  EXPECT_TRUE(std::isnan(history.scale_amax(INFINITY, 6, true)));
  EXPECT_EQ(history.scale_amax(1, 7, true), 1) << "infinity is not remembered";
}

TEST_F(MeasureTest, AMarginLeavesHeadRoomAndTheLatestForgets) {
  TestHost host(*bench.device, 1);
  SitePlan plan;
  plan.history = 4;
  plan.margin = 2;
  plan.latest = true;
  AmaxHistory history(host, "x", plan);
  EXPECT_EQ(history.scale_amax(8, 0, true), 32);
  EXPECT_EQ(history.scale_amax(2, 1, true), 32);
  EXPECT_EQ(history.scale_amax(2, 2, true), 8) << "slot 1, not the largest";
}

TEST_F(MeasureTest, AHistoryGoesOnInAnotherSiteThatHasItsState) {
  const auto precision = bench.make_component<Precision>("fp8", "recipe = \"delayed\"\nhistory = 3");
  const SiteInfo info = site_info(16, 16, 32);
  Rig whole(*bench.device, *precision, info), later(*bench.device, *precision, info);
  const auto step = [](Rig& rig, int slot) {
    Values x = tenon::testing::normals(16 * 32, "x" + std::to_string(slot));
    for (double& value : x) value *= 1 + slot % 3;
    rig.set(rig.x, x);
    ++rig.call.weight_version;
    return rig.step(slot);
  };
  for (int slot = 0; slot < 4; ++slot) step(whole, slot);
  ASSERT_FALSE(whole.host.states.empty());
  for (const auto& [name, view] : whole.host.states) bench.device->copy(view, later.host.states.at(name));
  Rig without(*bench.device, *precision, info);
  const auto expected = step(whole, 4);
  EXPECT_EQ(step(later, 4), expected);
  EXPECT_NE(step(without, 4), expected) << "the state matters";
  EXPECT_EQ(step(later, 5), step(whole, 5));
}

TEST_F(MeasureTest, P31_RanksThatShareATensorShareItsScale) {
  Registry& registry = bench.registry;
  const auto clock = make_wall_clock();
  WorldSpec world;
  world.ranks = 2;
  world.deadline_s = 20;
  world.clock = clock.get();
  const auto transport = tenon::testing::make<Transport>(registry, bench.host, "thread", "");
  transport->connect(world);
  const int ranks[] = {0, 1};
  float found[2] = {};
  float bad[2] = {};
  const auto run = [&](int rank) {
    GroupSpec spec;
    spec.ranks = ranks;
    spec.name = "amax";
    const auto group = transport->open(rank, spec);
    found[rank] = agreed(rank == 0 ? 3.5f : 7.25f, group.get());
    bad[rank] = agreed(rank == 0 ? NAN : 7.25f, group.get());
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  EXPECT_EQ(found[0], 7.25f);
  EXPECT_EQ(found[1], 7.25f);
  EXPECT_TRUE(std::isnan(bad[0]) && std::isnan(bad[1])) << "what one rank saw, all must refuse";
  EXPECT_EQ(agreed(2, nullptr), 2);
}

TEST_F(MeasureTest, KeepWorstTurnsTheSitesThatRoundingHurtsMost) {
  const auto precision = bench.make_component<Precision>(
      "nvfp4", "keep_worst = 0.5\nkeep_worst_slot = 2\nstochastic = \"none\"");
  SiteInfo good = site_info(16, 32, 32), bad = good;
  good.layer = "h.0.fc";
  bad.layer = "h.1.fc";
  bad.layer_index = bad.block_index = 1;
  Rig calm(*bench.device, *precision, good), wild(*bench.device, *precision, bad);
  Values w = wild.get(wild.w);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] *= i % 16 == 0 ? 40 : 1;  // one outlier per block
  wild.set(wild.w, w);
  for (int slot = 0; slot < 5; ++slot) {
    calm.host.counts.clear();
    wild.host.counts.clear();
    calm.step(slot);
    wild.step(slot);
    EXPECT_TRUE(precision->after_backward({.slot = slot}));
    EXPECT_EQ(calm.host.counts["bf16"], 0) << slot;
    EXPECT_EQ(wild.host.counts["bf16"], slot > 2 ? 6 : 0) << slot;
  }
}

TEST(HighPrecisionFallback, DecidesOnceByErrorAndInTheOrderOfTheModel) {
  HighPrecisionFallback worst(0.4, 10);
  for (const char* layer : {"a", "b", "c", "d", "e"}) worst.add(layer, 0);
  EXPECT_EQ(worst.add("c", 0), 2) << "the same site in another executor";
  const double errors[] = {0.1, 0.3, 0.2, 0.3, 0.3};
  const auto measure = [&] {
    for (int i = 0; i < 5; ++i) worst.measured(i, errors[i]);
  };
  EXPECT_FALSE(worst.measures(9));
  measure();
  worst.end_slot(9);
  EXPECT_FALSE(worst.kept(1)) << "not yet";
  EXPECT_TRUE(worst.measures(10));
  worst.end_slot(10);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(worst.kept(i), i == 1 || i == 3) << i;
  EXPECT_FALSE(worst.measures(11));
}

}  // namespace
}  // namespace tenon::quantized
