// A study of sites on loads written by hand: closed forms, drawn steps, tables that say what is modelled, and
// files that must be refused.
#include "reproduce/sites.hpp"

#include "ab/testing/synthetic_runs.hpp"
#include "reproduce/render.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace tenon::reproduce {
namespace sites_test {

using ab::testing::fresh_folder;
using ab::testing::replaced;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSitesStudy = R"(title = "Sites"
paper = "p"
question = "q"
base = "site.toml"
metric = "energy"
baseline = "none"
[sites]
[[sites.arm]]
arm = "floor"
closed_form = true
expected = "energy 12.36 %"
[size.quick]
seeds = [1]
[size.default]
seeds = [1, 2]
[[arm]]
name = "none"
[[arm]]
name = "floor"
title = "a floor of 0.9"
set = ["power.repeat=7"]
)";

StudyFile sites_study(const std::string& folder, const std::string& text = kSitesStudy) {
  ab::testing::write_text(folder + "/site.toml", "[power]\nrepeat = 3\n");
  ab::testing::write_text(folder + "/sites.toml", text);
  return read_study(folder + "/sites.toml");
}

std::string refused(const std::string& text) {
  try {
    sites_study(fresh_folder("sites_refused"), text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

power::Levels levels() {
  power::Levels out;
  out.rated_watts = 1000;
  out.levels = {{"high", 1, 1, 0, 0}, {"low", 0.3, 0, 0, 0}, {"idle", 0.3, 0, 0, 0}};
  return out;
}

/// Two seconds of a step, `steps` times.
power::Plan square(int steps) {
  power::Plan plan;
  plan.where = "site.toml:1:1";
  plan.levels = levels();
  plan.repeat = steps;
  plan.workers.count = 2;
  plan.spec.name = "limits";
  power::PhaseLog log{"script", {}, {}};
  for (int step = 0; step < steps; ++step) {
    log.phases.push_back({2.0 * step, 2.0 * step + 1.64, "high"});
    log.phases.push_back({2.0 * step + 1.64, 2.0 * step + 2, "low"});
  }
  plan.logs = {log};
  return plan;
}

/// A site whose policies add `extra` of the energy; its ramp is `ramp`.
power::SimulatedSite site(double extra, double ramp) {
  power::SimulatedSite out{square(20), {}};
  power::Stage stage{"unmitigated", {100, std::vector<double>(4000, 1000.0)}, {}, {}, 1000};
  stage.measured = stage.trace;
  stage.reading.mean = 1000;
  stage.reading.verdict = {{"ramp up", "rated/s", ramp, 0.1, ramp <= 0.1},
                           {"ramp down", "rated/s", 0, 0.1, true},
                           {"range", "rated", 0.05, 0.1, true},
                           {"band share", "", 0.022, 0.2, true}};
  out.result.stages.push_back(stage);
  stage.energy_j = 1000 * (1 + extra);
  out.result.stages.push_back(stage);
  out.result.job_s = 40;
  out.result.delay_s = 1;
  return out;
}

TEST(FloorForm, ThePairsOfTenAndAHalfPerCent) {
  // The duties have three digits, and 0.0005 of a duty are at most 0.04 per cent.
  for (const auto& [low, duty] : {std::pair{0.2, 0.866}, std::pair{0.3, 0.844}, std::pair{0.4, 0.813},
                                  std::pair{0.5, 0.768}, std::pair{0.6, 0.693}})
    EXPECT_NEAR((FloorForm{low, duty, 0.9}.percent()), 10.5, 0.04) << low;
  EXPECT_NEAR((FloorForm{0.3, 0.82, 0.9}.percent()), 12.36, 0.005);
  EXPECT_DOUBLE_EQ((FloorForm{0.3, 0.82, 0.3}.percent()), 0);
}

TEST(FloorForm, NeedsOneFloorOverTwoLevels) {
  try {
    floor_form(square(2));
    FAIL() << "there is no policy";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("site.toml:1:1: the closed form of a floor needs a load of two levels"));
    EXPECT_THAT(error.what(), HasSubstr("found 0 policies"));
  }
}

TEST(DrawnSteps, KeepTheirSharesAndFollowTheSeed) {
  constexpr int kSteps = 4000;
  power::Plan plan = square(kSteps), again = square(kSteps), other = square(kSteps);
  // As repetition leaves it where sums of lengths round.
  plan.logs[0].phases.insert(plan.logs[0].phases.begin() + 2, {2, 2 + 1e-13, "idle"});
  draw_steps(plan, 0.02, 1);
  draw_steps(again, 0.02, 1);
  draw_steps(other, 0.02, 2);
  const std::vector<power::Phase>& phases = plan.logs[0].phases;
  ASSERT_EQ(phases.size(), 2u * kSteps);
  double sum = 0, squares = 0;
  for (int step = 0; step < kSteps; ++step) {
    const power::Phase &high = phases[2 * step], &low = phases[2 * step + 1];
    const double seconds = low.end_s - high.begin_s;
    EXPECT_NEAR((high.end_s - high.begin_s) / seconds, 0.82, 1e-9);
    if (step > 0) {
      EXPECT_EQ(high.begin_s, phases[2 * step - 1].end_s);
    }
    sum += seconds / kSteps;
    squares += (seconds - 2) * (seconds - 2) / kSteps;
  }
  // Four standard errors of a mean and of a deviation.
  EXPECT_NEAR(sum, 2, 4 * 0.04 / std::sqrt(kSteps));
  EXPECT_NEAR(std::sqrt(squares), 0.04, 4 * 0.04 / std::sqrt(2.0 * kSteps));
  EXPECT_EQ(plan.logs[0].end_s(), again.logs[0].end_s());
  EXPECT_NE(plan.logs[0].end_s(), other.logs[0].end_s());
  power::Plan of_run = square(2);
  of_run.logs[0].source = "run/trace.rank0.json";
  EXPECT_THROW(draw_steps(of_run, 0.02, 1), Error);
}

Outcome simulated(const StudyFile& study, const std::string& folder, double floor_percent, double ramp,
                  std::vector<std::string>* asked = nullptr) {
  const auto kind = std::make_shared<Sites>(study.as<Sites>());
  Request request;
  request.simulate_site = [&](const std::string& path, const std::vector<std::string>& sets,
                              const std::function<void(power::Plan&)>&) {
    const bool floor = path.ends_with("/arms/floor.toml");
    if (asked != nullptr) {
      std::string line = floor ? "floor" : "none";
      for (const std::string& set : sets) line += " " + set;
      asked->push_back(line);
    }
    return site(floor ? floor_percent / 100 : 0, floor ? ramp : 5);
  };
  ab::RunnerOptions runner;
  runner.folder = folder;
  return kind->run(study, *study.size("default"), request, runner);
}

TEST(Sites, TablesSayWhatIsModelled) {
  const std::string folder = fresh_folder("sites");
  const StudyFile study =
      sites_study(folder, replaced(kSitesStudy, "closed_form = true", "step_jitter = 0.0"));
  std::vector<std::string> asked;
  Outcome out = simulated(study, folder + "/out", 12.17, 0.09, &asked);
  EXPECT_THAT(asked, ::testing::ElementsAre("none power.workers.seed=1", "none power.workers.seed=2",
                                            "floor power.repeat=7 power.workers.seed=1",
                                            "floor power.repeat=7 power.workers.seed=2"));
  EXPECT_TRUE(out.result.complete);
  const std::string table = table_markdown(out.result);
  EXPECT_THAT(table, HasSubstr("### Against the limits, modelled"));
  EXPECT_THAT(table, HasSubstr("| none | 5.000 | 0.000 | 0.050 | 2.20 | 0.00 | 2.50 | fails | – |"));
  EXPECT_THAT(table, HasSubstr("| a floor of 0.9 | 0.090 | 0.000 | 0.050 | 2.20 | +12.17 | 2.50 | passes | "
                               "energy 12.36 % |"));
  EXPECT_THAT(table, Not(HasSubstr("closed form, %, computed")));
  const auto json = nlohmann::json::parse(table_json(out.result));
  EXPECT_NEAR(json["sites"][1]["energy_percent_modelled"].get<double>(), 12.17, 1e-9);
  EXPECT_TRUE(json["sites"][1]["energy_percent_computed"].is_null());
  const std::string figure = figure_svg(out.result);
  EXPECT_NE(figure.find("first seed; modelled"), std::string::npos);
  EXPECT_NE(figure.find("a floor of 0.9: passes"), std::string::npos);
}

TEST(Sites, AnEnergyApartFromItsClosedFormIsNotComplete) {
  SiteArm arm;
  arm.runs.push_back({});
  arm.form = FloorForm{0.3, 0.82, 0.9};
  arm.runs.back().energy_percent = 12.36;
  EXPECT_FALSE(arm.misses_form(0.005));
  arm.runs.back().energy_percent = 12.17;
  EXPECT_TRUE(arm.misses_form(0.005));
  arm.form->at_once = false;
  EXPECT_FALSE(arm.misses_form(0.005)) << "rise times are not in the closed form";
}

TEST(Sites, RefusesWhatASiteDoesNotHave) {
  EXPECT_THAT(refused(replaced(kSitesStudy, "[size.quick]\n", "[size.quick]\nsteps = 3\n")),
              HasSubstr("a site has phases and no steps"));
  EXPECT_THAT(refused(replaced(kSitesStudy, "arm = \"floor\"", "arm = \"flor\"")),
              HasSubstr("no arm is called 'flor'; did you mean 'floor'?"));
  EXPECT_THAT(refused(replaced(kSitesStudy, "[sites]\n", "[sites]\n[[sites.arm]]\narm = \"floor\"\n")),
              HasSubstr("arm 'floor' has an entry already"));
  EXPECT_THAT(refused(replaced(kSitesStudy, "[sites]\n", "[map]\nworkers = [1]\n[sites]\n")),
              HasSubstr("[sites]"));
}

}  // namespace sites_test
}  // namespace tenon::reproduce
