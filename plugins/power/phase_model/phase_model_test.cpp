// The modelled load against steps of a microsecond, whenever it is asked for; and the track of phases between
// two threads, also where the reader is too late.
#include "phase_model.hpp"

#include <tenon/testing/power.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

namespace tenon::phase_model {
namespace {

using testing::make_policy;

struct Moment {
  double at_s;
  Phase phase;
};

TEST(PhaseModel, SaysThatItIsModelled) {
  const auto made = make_policy<PhaseModel>("rated_watts = 700.0");
  const PowerSourceInfo info = made->open(3);
  EXPECT_EQ(info.sensor, "levels of phases for 700 W, which are assumptions");
  EXPECT_EQ(info.origin, PowerOrigin::kModelled);
  EXPECT_EQ(info.unit, PowerUnit::kWatts);
  EXPECT_EQ(info.rated, 700);
  EXPECT_TRUE(made->every_rank());
  EXPECT_TRUE(std::isnan(made->joules()));
  EXPECT_EQ(made->query(PowerSource::kId), static_cast<PowerSource*>(made.policy.get()));
  EXPECT_EQ(made->query(PhaseObserver::kId), static_cast<PhaseObserver*>(made.policy.get()));
  EXPECT_EQ(made->query(PowerPolicy::kId), nullptr);
}

TEST(PhaseModel, HasALevelForEveryPhase) {
  const auto made = make_policy<PhaseModel>("rise_s = 0.0\nfall_s = 0.0");
  made->open(0);
  // Of configs/power/cpu_like.toml, where it has the phase.
  const std::pair<Phase, double> kLevels[] = {
      {Phase::kBegin, 0.3},     {Phase::kForward, 0.95},      {Phase::kBackward, 1.0},
      {Phase::kOptimizer, 0.8}, {Phase::kCompute, 0.95},      {Phase::kIdle, 0.3},
      {Phase::kWait, 0.45},     {Phase::kData, 0.5},          {Phase::kCommunication, 0.45},
      {Phase::kEvaluate, 0.95}, {Phase::kSave, 0.4},          {Phase::kEnd, 0.3},
      {Phase::kGenerate, 0.95}, {static_cast<Phase>(77), 0.3}};
  double now_s = 100;
  EXPECT_TRUE(std::isnan(made->read(now_s))) << "no time has passed";
  for (const auto& [phase, share] : kLevels) {
    made->on_phase(phase, now_s);
    now_s += 0.25;
    EXPECT_NEAR(made->read(now_s), 200 * share, 1e-6) << phase_name(phase);
    EXPECT_TRUE(std::isnan(made->read(now_s)));
  }
}

TEST(PhaseModel, RisesAndFallsByAFirstOrderResponse) {
  const auto made = make_policy<PhaseModel>("rated_watts = 100.0\nrise_s = 0.1\nfall_s = 0.5\nidle = 0.2");
  made->open(0);
  made->on_phase(Phase::kBackward, 1);
  // 100 - 80 exp(-t / 0.1) from t = 0: its mean over 0.1 s is 100 - 80 (1 - 1/e).
  EXPECT_NEAR(made->read(1.1), 100 - 80 * (1 - std::exp(-1)), 1e-6);
  EXPECT_NEAR(made->read(1.1 + 1e-7), 100 - 80 * std::exp(-1), 1e-2) << "its value then";
  made->read(11);
  made->on_phase(Phase::kIdle, 11);
  EXPECT_NEAR(made->read(12), 20 + 80 * 0.5 * (1 - std::exp(-2)), 1e-6);
}

/// Joules of the moments up to `end_s` in steps of a microsecond.
double joules_by_steps(const std::vector<Moment>& moments, double end_s) {
  const auto level = [](Phase phase) {
    return phase == Phase::kForward ? 190.0 : phase == Phase::kBackward ? 200.0 : 60.0;
  };
  const double dt = 1e-6;
  double watts = 60, joules = 0;
  std::size_t next = 0;
  Phase phase = Phase::kIdle;
  const auto steps = std::llround((end_s - moments[0].at_s) / dt);
  for (std::int64_t i = 0; i < steps; ++i) {
    const double now_s = moments[0].at_s + (static_cast<double>(i) + 0.5) * dt;
    while (next < moments.size() && moments[next].at_s <= now_s) phase = moments[next++].phase;
    const double gap = level(phase) - watts, slope = gap / (gap > 0 ? 0.005 : 0.02);
    joules += (watts + 0.5 * slope * dt) * dt;
    watts += slope * dt;
  }
  return joules;
}

TEST(PhaseModel, KeepsTheEnergyOfShortPhasesHoweverRarelyItIsRead) {
  std::vector<Moment> moments;
  double at_s = 2;
  const Phase kTurn[] = {Phase::kForward, Phase::kBackward, Phase::kIdle};
  for (int i = 0; i < 300; ++i) {
    moments.push_back({at_s, kTurn[i % 3]});
    at_s += 1e-4 * (1 + i * 7 % 13);  // 0.1 to 1.3 ms
  }
  const double expected_j = joules_by_steps(moments, at_s);
  for (const double period_s : {0.0003, 0.01, 10.0}) {
    const auto made = make_policy<PhaseModel>("");
    made->open(0);
    double joules = 0, last_s = 2, now_s = 2;
    std::size_t next = 0;
    while (now_s < at_s) {
      now_s = std::min(at_s, now_s + period_s);
      // Also phases that begin after the moment of the value: they have to wait.
      while (next < moments.size() && moments[next].at_s <= now_s + 0.002) {
        made->on_phase(moments[next].phase, moments[next].at_s);
        ++next;
      }
      const double watts = made->read(now_s);
      ASSERT_GE(watts, 59.99);
      ASSERT_LE(watts, 200.01);
      joules += watts * (now_s - last_s);
      last_s = now_s;
    }
    EXPECT_NEAR(joules, expected_j, 1e-4 * expected_j) << "read every " << period_s << " s";
    EXPECT_EQ(made->lost(), 0u);
  }
}

TEST(PhaseModel, CountsLostPhasesAsTheLastOneKnownBefore) {
  const auto made = make_policy<PhaseModel>("rated_watts = 100.0\nrise_s = 0.0\nfall_s = 0.0\nsave = 0.5");
  made->open(0);
  made->on_phase(Phase::kSave, 0);
  EXPECT_NEAR(made->read(1), 50, 1e-9);
  // Two milliseconds each, after which the newest lasts a second.
  const auto many = static_cast<int>(PhaseTrack::kRoom) + 99;
  for (int i = 0; i < many; ++i) made->on_phase(Phase::kBackward, 1 + 0.002 * i);
  const double last_s = 1 + 0.002 * (many - 1);
  made->on_phase(Phase::kIdle, last_s);
  const double end_s = last_s + 1;
  // Of many + 1 phases the track keeps kRoom - 1; until the first of these the load stays that of the save.
  const int lost = many + 1 - (static_cast<int>(PhaseTrack::kRoom) - 1);
  const double joules = 50 * 0.002 * lost + 100 * (last_s - 1 - 0.002 * lost) + 30;
  EXPECT_NEAR(made->read(end_s) * (end_s - 1), joules, 1e-4);
  EXPECT_EQ(made->lost(), static_cast<std::uint64_t>(lost));
  EXPECT_NEAR(made->read(end_s + 1), 30, 1e-9) << "the newest phase is known";
}

TEST(PhaseTrack, PassesPhasesFromAThreadThatNeverWaits) {
  constexpr int kEvents = 2000000;
  PhaseTrack track;
  std::thread writer([&] {
    for (int i = 1; i <= kEvents; ++i) track.put(static_cast<Phase>(i % 10), i);
  });
  PhaseTrack::Event event;
  std::uint64_t taken = 0;
  double last_s = 0;
  while (last_s < kEvents) {
    if (!track.take(1e9, event)) continue;
    ++taken;
    const auto number = std::llround(event.at_s);
    ASSERT_GT(event.at_s, last_s);
    ASSERT_EQ(static_cast<int>(event.phase), number % 10) << "of event " << number;
    ASSERT_EQ(static_cast<std::int64_t>(taken + track.lost()), number) << "none twice, and none forgotten";
    last_s = event.at_s;
  }
  writer.join();
  EXPECT_EQ(taken + track.lost(), static_cast<std::uint64_t>(kEvents));
}

}  // namespace
}  // namespace tenon::phase_model
