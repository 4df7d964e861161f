// Time to a loss: crossings, censoring, spreads, the tables [time_to] of a study, and runs re-timed by others
// made from formulas.
#include "reproduce/time_to.hpp"
#include "reproduce/reproduce.hpp"

#include "ab/study.hpp"
#include "ab/testing/synthetic_runs.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <limits>

namespace tenon::reproduce {
namespace {

namespace fs = std::filesystem;
using ab::testing::fresh_folder;
using ab::testing::read_text_file;
using ab::testing::replaced;
using ab::testing::write_text;
using ::testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Evaluations at slots 10, 20, ... that take 2 s a slot.
Curve curve(const std::vector<double>& values) {
  Curve out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double step = 10.0 * static_cast<double>(i + 1);
    out.push_back({.step = step,
                   .seconds = 2 * step,
                   .drawn = 4 * step,
                   .trained = 3 * step,
                   .bytes = 100 * step,
                   .value = values[i]});
  }
  return out;
}

TEST(TimeTo, TheFirstCrossingIsFoundBetweenEvaluations) {
  const struct {
    const char* what;
    std::vector<double> values;
    double threshold;
    bool lower, reached;
    double step;
  } cases[] = {
      {"a quarter of the way", {4, 3, 2}, 2.75, true, true, 22.5},
      {"exactly an evaluation", {4, 3, 2}, 3, true, true, 20},
      {"the first of several crossings", {4, 2, 4, 1}, 3, true, true, 15},
      {"equal values do not move it", {3, 3, 2}, 2.5, true, true, 25},
      {"at once: nothing to interpolate from", {1, 1}, 3, true, true, 10},
      {"never: the end of the curve", {4, 3.5, 3.1}, 3, true, false, 30},
      {"a higher metric is better", {0.1, 0.3, 0.5}, 0.4, false, true, 25},
      {"not a number is nowhere, and no beginning of a line", {4, kNaN, 2}, 3, true, true, 30},
      {"ends as not a number", {4, kNaN}, 3, true, false, 20},
  };
  for (const auto& c : cases) {
    const Reach reach = first_reach(curve(c.values), c.threshold, c.lower);
    EXPECT_EQ(reach.reached, c.reached) << c.what;
    EXPECT_DOUBLE_EQ(reach.at.step, c.step) << c.what;
    EXPECT_DOUBLE_EQ(reach.at.seconds, 2 * c.step) << c.what;
    EXPECT_DOUBLE_EQ(reach.at.trained, 3 * c.step) << c.what;
  }
  EXPECT_FALSE(first_reach({}, 3, true).reached);
}

TEST(TimeTo, TheLooserThresholdIsEasierWhateverTheSign) {
  EXPECT_DOUBLE_EQ(looser_threshold(2, 0.02, true), 2.04);
  EXPECT_DOUBLE_EQ(looser_threshold(-2, 0.02, true), -1.96);
  EXPECT_DOUBLE_EQ(looser_threshold(0.5, 0.02, false), 0.49);
}

TEST(TimeTo, ValuesAreReadOffACurveInsideItAlone) {
  const Curve c = curve({4, 3, 2});
  EXPECT_DOUBLE_EQ(*value_at(c, &CurvePoint::seconds, 30), 3.5);
  EXPECT_DOUBLE_EQ(*value_at(c, &CurvePoint::trained, 90), 2);
  EXPECT_FALSE(value_at(c, &CurvePoint::seconds, 19.9));
  EXPECT_FALSE(value_at(c, &CurvePoint::seconds, 60.1));
}

TEST(TimeTo, CensoredTimesAreLaterThanAllOthersAndNeverAveragedIn) {
  const auto one_late = spread_of({{7, true}, {9, false}, {8, false}});
  ASSERT_TRUE(one_late);
  EXPECT_EQ(one_late->censored, 1u);
  EXPECT_DOUBLE_EQ(one_late->median.value, 9);
  EXPECT_FALSE(one_late->median.bound);
  EXPECT_EQ(spread_text(one_late, 0, false, false), "9 (8 to > 7)");

  const auto most_late = spread_of({{7, true}, {9, false}, {6, true}});
  EXPECT_TRUE(most_late->median.bound);
  EXPECT_EQ(spread_text(most_late, 0, false, false), "> 6 (9 to > 7)");

  const auto beside = spread_of({{4, false}, {8, true}});
  EXPECT_EQ(spread_text(beside, 0, false, false), "> 6 (4 to > 8)") << "beyond the middle of both";

  const auto gaps = spread_of_upper({{10, false}, {-20, true}, {5, false}});
  EXPECT_EQ(spread_text(gaps, 0, true, true), "+5 (< −20 to +10)");
  EXPECT_EQ(spread_text(spread_of({{3, false}}), 1, false, false), "3.0");
  EXPECT_EQ(spread_text(spread_of({}), 1, false, false), "–");
}

TEST(TimeTo, APositiveGapIsFaster) {
  const Curve fast = curve({2}), slow = curve({5, 4, 3});
  EXPECT_DOUBLE_EQ(time_gap(40, first_reach(fast, 3, true)).value, 50);
  const Bounded late = time_gap(40, first_reach(slow, 1, true));
  EXPECT_DOUBLE_EQ(late.value, -50);
  EXPECT_TRUE(late.bound);
}

TEST(TimeTo, EvaluationsAreTakenOutOfARunsOwnTime) {
  ab::RunRecord run;
  run.series["train/loss"] = {{10, 4, 1.0, 0, 0, 100}, {20, 3, 2.5, 0, 0, 260}, {30, 2, 4.0, 0, 0, 420}};
  run.series["val/loss"] = {{10, 4, 1.5, 0, 0, 160}, {20, 3, 3.0, 0, 0, 320}};
  const SlotTimes times = slot_times(run, "val/loss");
  EXPECT_THAT(times.seconds, ::testing::ElementsAre(1.0, 2.0, 3.0));
  EXPECT_THAT(times.bytes, ::testing::ElementsAre(100, 200, 300));
  EXPECT_DOUBLE_EQ(*times.seconds_at(15), 1.5);
  EXPECT_DOUBLE_EQ(*times.seconds_at(5), 0.5);
  EXPECT_FALSE(times.seconds_at(31));
}

constexpr const char* kLinkStudy = R"(title = "Links"
paper = "none"
question = "Which is faster?"
base = "base.toml"
baseline = "a"

[size.quick]
steps = 400
seeds = [1]

[size.default]
steps = 400
seeds = [1, 2, 3]

[time_to]
timing_set = ["data.batch=1"]
one_seed = ["a"]

[[time_to.link]]
name = "fast"
set = ["transport.clock.type=simulated"]

[[time_to.link]]
name = "slow"
set = ["transport.clock.type=simulated", "transport.link.bandwidth=1e6"]

[[arm]]
name = "a"

[[arm]]
name = "b"

[[arm]]
name = "never"
)";

class TimeToStudy : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_folder(::testing::UnitTest::GetInstance()->current_test_info()->name());
    write_text(folder_ + "/base.toml", "[run]\nname = \"x\"\neval_every = 50\nlog_every = 10\n");
    options_.folder = folder_ + "/out";
  }
  StudyFile read(const std::string& text) const {
    write_text(folder_ + "/links.toml", text);
    return read_study(folder_ + "/links.toml");
  }
  std::string error(const std::string& text) const {
    try {
      read(text);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  static ResolvedRun resolve(const std::string& path, const std::vector<std::string>& sets) {
    return {Config::load(path, sets).root(), {"parameters: 1000 trained"}};
  }
  void make_plans(const StudyFile& study) {
    plan_ = make_plan(study, *study.size("default"), options_, resolve);
    timings_ = make_timing_plans(study, *study.size("default"), plan_, options_, resolve);
  }
  /// Curves that go to 2.0 (b: to 1.9, never: to 2.3), 1 s a slot; under link fast 0.1 s, slow 0.2 s, and for
  /// b half.
  void write_all() {
    ab::testing::write_runs(plan_.experiment, options_.folder, [](std::size_t arm, std::int64_t seed) {
      const double ends[] = {2.0, 1.9, 2.3};
      return ab::testing::SyntheticRun{
          .seed = seed, .step_seconds = 1, .bytes_per_step = 10, .final_loss = ends[arm]};
    });
    for (std::size_t l = 0; l < timings_.size(); ++l) {
      ab::testing::write_runs(timings_[l].plan.experiment, timings_[l].folder,
                              [&](std::size_t arm, std::int64_t seed) {
                                return ab::testing::SyntheticRun{
                                    .seed = seed,
                                    .eval_every = 400,
                                    .batch = 1,
                                    .step_seconds = 0.1 * static_cast<double>(l + 1) / (arm == 1 ? 2 : 1),
                                    .bytes_per_step = 10};
                              });
    }
  }
  StudyResult results(const StudyFile& study) const {
    StudyResult r = read_results(study, *study.size("default"), plan_, options_.folder);
    read_time_to_results(r, options_.folder);
    return r;
  }

  std::string folder_;
  ab::RunnerOptions options_;
  Plan plan_;
  std::vector<TimingPlan> timings_;
};

TEST_F(TimeToStudy, RunsAreRetimedByTheirLinksAndCensoredOnesCounted) {
  const StudyFile study = read(kLinkStudy);
  make_plans(study);
  write_all();
  const StudyResult r = results(study);
  EXPECT_TRUE(r.complete) << (r.warnings.empty() ? "" : r.warnings[0]);
  const TimeToResult& t = r.as<TimeToResult>();
  ASSERT_EQ(t.arms.size(), 3u);
  EXPECT_TRUE(t.simulated);
  // The pace of synthetic runs wanders by a per cent with the seed; arm a's is that of seed 1 for all.
  const auto& a = t.arms[0].links;
  EXPECT_NEAR(a[0].strict.seconds->median.value, 40, 1.5);
  EXPECT_EQ(a[0].strict.seconds->low.value, a[0].strict.seconds->high.value);
  EXPECT_NEAR(a[1].strict.seconds->median.value / a[0].strict.seconds->median.value, 2, 1e-9);
  EXPECT_FALSE(a[0].strict.gap);
  EXPECT_EQ(t.arms[0].strict.steps->median.value, 400);
  EXPECT_EQ(t.arms[0].strict.drawn->median.value, 400 * 16);
  EXPECT_NEAR(t.arms[0].strict.bytes->median.value, 4000, 1e-9);
  EXPECT_LT(t.arms[0].looser.steps->median.value, 400);

  const auto& b = t.arms[1].links[0];
  EXPECT_LT(b.strict.seconds->median.value, 20);
  EXPECT_GT(b.strict.gap->median.value, 50);
  const TimedArm& never = t.arms[2].links[0];
  EXPECT_EQ(never.strict.seconds->censored, 3u);
  EXPECT_TRUE(never.strict.seconds->median.bound);
  EXPECT_TRUE(never.strict.gap->median.bound);
  EXPECT_EQ(reached_text(never.strict), "0 of 3");
  // b's runs end first: at their ends the others are half way.
  EXPECT_NEAR(t.arms[1].links[0].at_equal_time->median.value, 1.9, 1e-9);
  EXPECT_GT(t.arms[0].links[0].at_equal_time->median.value, 2.0);
  EXPECT_NEAR(t.arms[0].at_equal_samples->median.value, 2.0, 1e-9);

  const std::string text = table_markdown(r);
  EXPECT_THAT(text, HasSubstr("| arm | runs that reach it | fast: simulated s |"));
  EXPECT_THAT(text, HasSubstr("| never | 0 of 3 | > "));
  EXPECT_THAT(text, HasSubstr("**Times are simulated.**"));
  const auto json = nlohmann::json::parse(table_json(r));
  EXPECT_EQ(json["time_to"]["arms"][2]["links"][0]["threshold"]["seconds"]["censored"], 3);
  EXPECT_EQ(json["time_to"]["arms"][2]["links"][0]["threshold"]["runs"][0]["reached"], false);
  EXPECT_TRUE(json["time_to"]["simulated"].get<bool>());
  EXPECT_THAT(figure_svg(r), HasSubstr("simulated time to the baseline"));
}

TEST_F(TimeToStudy, TheThresholdMayBeThatOfAPartOfTheBaselinesSlots) {
  const StudyFile study = read(replaced(kLinkStudy, "[time_to]", "[time_to]\nbudget = 0.5"));
  make_plans(study);
  write_all();
  const StudyResult r = results(study);
  EXPECT_GT(*r.as<TimeToResult>().arms[0].thresholds[0], 2.01);
  EXPECT_NEAR(r.as<TimeToResult>().arms[0].strict.steps->median.value, 200, 1e-9);
}

TEST_F(TimeToStudy, WhatIsMissingIsNamedAndLeavesTheRest) {
  const StudyFile study = read(kLinkStudy);
  make_plans(study);
  write_all();
  fs::remove_all(ab::run_parent(timings_[1].folder, "b", 2));
  fs::remove_all(ab::run_parent(options_.folder, "a", 3));
  const std::string other = ab::run_parent(timings_[0].folder, "never", 1) + "/1/summary.json";
  write_text(other, replaced(read_text_file(other), "\"bytes_by_purpose\": {",
                             "\"bytes_by_purpose\": {\"gradient\": 7, "));
  const StudyResult r = results(study);
  EXPECT_FALSE(r.complete);
  EXPECT_THAT(r.warnings, ::testing::Contains("timing of b, seed 2, link slow: not run yet"));
  EXPECT_THAT(r.warnings,
              ::testing::Contains("never, seed 1, link fast is not timed: its timing run sent 7 bytes of "
                                  "purpose gradient, the run itself 0"));
  const auto& b = r.as<TimeToResult>().arms[1].links;
  EXPECT_EQ(reached_text(b[0].strict), "2 of 3, 1 missing") << "without a baseline there is no threshold";
  EXPECT_EQ(reached_text(b[1].strict), "1 of 3, 2 missing");
  EXPECT_EQ(b[1].strict.gap->n, 1u);
  EXPECT_THAT(table_markdown(r), HasSubstr("**Not complete"));
}

TEST_F(TimeToStudy, TimingRunsArePlannedPerSeedUnlessOneWillDoAndKeptWhileTheyMatch) {
  const StudyFile study = read(kLinkStudy);
  make_plans(study);
  ASSERT_EQ(timings_.size(), 2u);
  EXPECT_EQ(timings_[0].plan.runs.size(), 7u) << "a once, b and never per seed";
  EXPECT_THAT(timings_[1].plan.runs[0].job.command, ::testing::Contains("transport.link.bandwidth=1e6"));
  EXPECT_THAT(timings_[1].plan.runs[0].job.command, ::testing::Contains("run.eval_every=0"));
  EXPECT_TRUE(timings_[1].plan.runs[0].job.parent.starts_with(folder_ + "/out/timing/slow/runs/"));

  // Written as by the program: the resolved configuration is that of the plan.
  const auto write_resolved = [&](const PlannedRun& run, const Value& root) {
    std::string text = "run.seed = " + std::to_string(run.job.seed) + "\n";
    for (const auto& [key, value] : flatten(root))
      if (key != "run.seed") text += key + " = " + value + "\n";
    write_text(run.job.parent + "/1/config.resolved.toml", text);
  };
  write_all();
  for (const TimingPlan& timing : timings_)
    for (const PlannedRun& run : timing.plan.runs) write_resolved(run, timing.plan.arms[run.job.arm].root);
  make_plans(study);
  for (const PlannedRun& run : timings_[0].plan.runs) EXPECT_EQ(run.action, Action::kKeep) << run.reason;
  make_plans(read(replaced(kLinkStudy, "bandwidth=1e6", "bandwidth=2e6")));
  EXPECT_EQ(timings_[0].plan.runs[0].action, Action::kKeep);
  EXPECT_EQ(timings_[1].plan.runs[0].action, Action::kStart);
  EXPECT_THAT(timings_[1].plan.runs[0].reason, HasSubstr("transport.link.bandwidth is now"));
}

TEST_F(TimeToStudy, ATimingRunThatWouldNotCompareIsRefusedBeforeAnyRun) {
  const auto refused = [&](const StudyFile& study, const Resolver& how) -> std::string {
    try {
      plan_ = make_plan(study, *study.size("default"), options_, resolve);
      require_lines_at_evaluations(study, plan_);
      make_timing_plans(study, *study.size("default"), plan_, options_, how);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(refused(read(kLinkStudy), resolve), "");
  EXPECT_THAT(
      refused(read(replaced(kLinkStudy, "transport.clock.type=simulated", "transport.clock.type=wall")),
              resolve),
      HasSubstr("link 'fast', arm 'a': a timing run needs the simulated clock, found transport.clock.type = "
                "\"wall\""));
  const Resolver shrunk = [](const std::string& path, const std::vector<std::string>& sets) {
    ResolvedRun run = resolve(path, sets);
    run.facts = {"parameters: 999 trained"};
    return run;
  };
  EXPECT_THAT(refused(read(kLinkStudy), shrunk),
              HasSubstr("the timing run has other parameters: expected 'parameters: 1000 "
                        "trained', found 'parameters: 999 trained'"));
  write_text(folder_ + "/base.toml", "[run]\nname = \"x\"\neval_every = 50\nlog_every = 20\n");
  EXPECT_THAT(
      refused(read(kLinkStudy), resolve),
      HasSubstr(
          "arm 'a': time to a loss needs a training line at each evaluation: expected run.eval_every to "
          "be a multiple of run.log_every, found 50 and 20"));
}

TEST_F(TimeToStudy, MistakesInTheTableNameTheKeyAndWhatIsNear) {
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"timing_set", "timing_sets", "did you mean 'timing_set'"},
      {"set = [\"transport.clock.type=simulated\"]", "sett = []", "did you mean 'set'"},
      {"one_seed = [\"a\"]", "one_seed = [\"nver\"]", "no arm is called 'nver'; did you mean 'never'?"},
      {"\"slow\"", "\"fast\"", "two links are called 'fast'"},
      {"\"slow\"", "\"a/b\"", "'a/b' cannot name a folder"},
      {"transport.link.bandwidth=1e6", "sync.interval=4", "'sync.interval=4' is no setting of [transport]"},
      {"data.batch=1", "run.steps=4", "'run.steps=4' changes what is timed"},
      {"[time_to]", "[time_to]\nbudget = 1.5", "budget"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(error(replaced(kLinkStudy, c.from, c.to)), HasSubstr(c.message)) << c.to;
}

TEST_F(TimeToStudy, AnArmMayHaveFewerSlotsThatHoldMore) {
  const StudyFile study = read(replaced(kLinkStudy, "name = \"b\"", "name = \"b\"\nsteps_over = 12"));
  make_plans(study);
  for (const PlannedRun& run : plan_.runs) {
    EXPECT_THAT(run.job.command, ::testing::Contains(run.job.arm == 1 ? "run.steps=34" : "run.steps=400"))
        << "400 / 12, up";
  }
}

}  // namespace
}  // namespace tenon::reproduce
