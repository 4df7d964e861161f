// Ladders: the fit against tests/reference/ab_ladder.json (NumPy), its intervals and its test over simulated
// studies, what a file may say, and the studies of the points with prepared runs.
#include "ab/ladder.hpp"

#include "ab/ab.hpp"
#include "ab/testing/synthetic_runs.hpp"
#include "ab/verdict_line.hpp"
#include "test_paths.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <string>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr double kAlpha = 0.05;

LadderEffect effect_of(double size, const std::vector<double>& differences) {
  return {size, mean_with_interval(differences, kAlpha)};
}

void expect_close(double got, const json& want, const std::string& what) {
  EXPECT_NEAR(got, want.get<double>(), 1e-6 * std::max(1.0, std::abs(want.get<double>()))) << what;
}

void expect_close(const Interval& got, const json& want, const std::string& what) {
  expect_close(got.low, want[0], what + " low");
  expect_close(got.high, want[1], what + " high");
}

TEST(LadderReference, FitIntervalsAndTest) {
  std::ifstream in(TENON_SOURCE_DIR "/tests/reference/ab_ladder.json");
  const json record = json::parse(in);
  ASSERT_GE(record["cases"].size(), 4u);
  for (const json& c : record["cases"]) {
    const std::string name = c["name"];
    std::vector<LadderEffect> effects;
    for (std::size_t i = 0; i < c["sizes"].size(); ++i)
      effects.push_back(effect_of(c["sizes"][i], c["pairs"][i].get<std::vector<double>>()));
    const LadderFit fit(effects);
    const json& held = c["held_out"];
    const LadderEffect held_out = effect_of(held["size"], held["pairs"].get<std::vector<double>>());
    expect_close(fit.slope(), c["slope"], name + " slope");
    expect_close(fit.slope_interval(kAlpha), c["slope_interval"], name + " slope");
    expect_close(fit.at(held_out.size), c["at_held_out"], name + " held out");
    expect_close(fit.interval(held_out.size, kAlpha), c["line_interval"], name + " line");
    expect_close(fit.prediction(held_out, kAlpha), c["prediction"], name + " prediction");
    expect_close(fit.chi_square(), c["chi_square"], name + " chi-square");
    expect_close(fit.p(), c["p"], name + " p");
    EXPECT_EQ(fit.degrees(), effects.size() - 2);
  }
}

TEST(LadderFit, PreciseEffectsWeighMore) {
  std::vector<LadderEffect> effects;
  for (const double size : {1.0, 2.0, 4.0, 8.0}) effects.push_back(effect_of(size, {0.9, 1.0, 1.1}));
  effects.push_back(effect_of(16, {3, 5, 7}));  // far off, and known badly
  EXPECT_NEAR(LadderFit(effects).at(16), 1, 0.05);
}

// Simulated ladders.

struct Shape {
  const char* name;
  std::vector<double> deviations;  ///< of a pair, by point; the last is held out
  std::size_t pairs;
  double bend = 0;  ///< of the effect against log2(size), in the deviations of the first point
};

struct Rates {
  int covered = 0, slopes = 0, rejected = 0, trials = 0;
};

Rates simulate(const Shape& shape, int trials) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> draw;
  Rates out;
  out.trials = trials;
  constexpr double kSlope = 0.03;
  for (int t = 0; t < trials; ++t) {
    std::vector<LadderEffect> effects;
    for (std::size_t k = 0; k < shape.deviations.size(); ++k) {
      const double u = 2 * static_cast<double>(k);  // each point has four times the size
      std::vector<double> differences(shape.pairs);
      for (double& d : differences)
        d = -0.5 + kSlope * u + shape.bend * shape.deviations[0] * u * u + shape.deviations[k] * draw(random);
      effects.push_back(effect_of(1000 * std::exp2(u), differences));
    }
    const LadderEffect held_out = effects.back();
    effects.pop_back();
    const LadderFit fit(effects);
    const Interval prediction = fit.prediction(held_out, kAlpha), slope = fit.slope_interval(kAlpha);
    out.covered += prediction.low <= held_out.effect.mean && held_out.effect.mean <= prediction.high;
    out.slopes += slope.low <= kSlope && kSlope <= slope.high;
    out.rejected += fit.p() <= kAlpha;
  }
  return out;
}

double share(int hits, const Rates& rates) {
  return static_cast<double>(hits) / rates.trials;
}

/// "94.8% (94.1 to 95.4)": Wilson's 95% interval.
std::string percent(int hits, const Rates& rates) {
  const double n = rates.trials, p = hits / n, z = 1.96;
  const double centre = (p + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return fmt::format("{:.1f}% ({:.1f} to {:.1f})", 100 * p, 100 * (centre - half), 100 * (centre + half));
}

const std::vector<Shape> kLines = {
    {"3 points, 3 pairs", {0.02, 0.02, 0.02, 0.02}, 3},
    {"3 points, 5 pairs, less noise at large sizes", {0.04, 0.02, 0.01, 0.005}, 5},
    {"5 points, 5 pairs", {0.02, 0.02, 0.02, 0.02, 0.02, 0.02}, 5},
    {"5 points, 8 pairs, more noise", {0.01, 0.01, 0.02, 0.03, 0.04, 0.04}, 8}};

TEST(LadderSimulation, PredictionsCoverHeldOutEffects) {
  for (const Shape& shape : kLines) {
    const Rates rates = simulate(shape, 4000);
    std::cout << shape.name << ": prediction intervals cover " << percent(rates.covered, rates)
              << ", slope intervals " << percent(rates.slopes, rates) << "\n";
    // Nominal 95; 4000 trials have a standard error of 0.35.
    EXPECT_GE(share(rates.covered, rates), 0.925) << shape.name;
    EXPECT_LE(share(rates.covered, rates), 0.975) << shape.name;
    EXPECT_GE(share(rates.slopes, rates), 0.90) << shape.name;
  }
}

TEST(LadderSimulation, TheTestOfTheFitKeepsItsLevelAndFindsABend) {
  for (Shape shape : kLines) {
    const Rates line = simulate(shape, 4000);
    EXPECT_LE(share(line.rejected, line), 0.065) << shape.name;
    shape.bend = 0.8;
    const Rates bent = simulate(shape, 1000);
    std::cout << shape.name << ": extrapolation refused for " << percent(line.rejected, line) << " of lines, "
              << percent(bent.rejected, bent) << " of bent ones\n";
    EXPECT_GE(share(bent.rejected, bent), shape.pairs < 5 ? 0.5 : 0.9) << shape.name;
  }
}

// A line in words.

std::vector<LadderEffect> on_a_line(double level, double slope, double noise = 0.001) {
  std::vector<LadderEffect> out;
  for (int k = 0; k < 4; ++k) {
    const double mean = level + slope * k + (k % 2 == 0 ? 0.2 : -0.2) * noise;
    out.push_back(effect_of(std::exp2(k), {mean - noise, mean, mean + noise, mean}));
  }
  return out;
}

TEST(LadderLine, TrendsAreNamedByTheSizeOfTheEffect) {
  const auto trend = [](double level, double slope) {
    return fit_line("a", on_a_line(level, slope), {}, kAlpha).trend;
  };
  EXPECT_EQ(trend(-1, 0.1), Trend::kShrinks);
  EXPECT_EQ(trend(1, -0.1), Trend::kShrinks);
  EXPECT_EQ(trend(-1, -0.1), Trend::kGrows);
  EXPECT_EQ(trend(-0.1, 0.1), Trend::kTurns);
  EXPECT_EQ(trend(-1, 0), Trend::kNone);
  std::vector<LadderEffect> bent = on_a_line(-1, 0.1);
  bent[1].effect.mean += 0.5;
  const LadderLine line = fit_line("a", bent, bent[0], kAlpha);
  EXPECT_EQ(line.trend, Trend::kNotALine);
  EXPECT_FALSE(line.held_out || line.within);
  EXPECT_TRUE(line.beyond.empty());
}

TEST(LadderLine, AHeldOutEffectIsNotFitted) {
  const std::vector<LadderEffect> fitted = on_a_line(-1, 0.1);
  const LadderLine alone = fit_line("a", fitted, {}, kAlpha);
  ASSERT_THAT(alone.beyond, SizeIs(2));
  EXPECT_EQ(alone.beyond[0].size, 16);
  EXPECT_EQ(alone.beyond[1].size, 80);
  EXPECT_NEAR(alone.beyond[0].effect, -0.6, 0.01);
  for (const auto& [mean, within] : {std::pair{-0.6, true}, std::pair{-0.3, false}}) {
    const LadderLine line =
        fit_line("a", fitted, effect_of(16, {mean - 0.001, mean, mean + 0.001, mean}), kAlpha);
    EXPECT_EQ(line.fit->slope(), alone.fit->slope());
    EXPECT_NEAR(std::log2(line.fit->crossing()), 10, 0.1);
    EXPECT_EQ(line.within, within);
    EXPECT_NEAR(line.held_out->effect, -0.6, 0.01);
    EXPECT_TRUE(line.beyond.empty());
  }
}

TEST(LadderLine, ANearCrossingIsNamed) {
  LadderResult result;
  result.experiment.metric = "val/loss";
  const auto words = [&](double level) {
    const LadderWords said = words_of(result, fit_line("a", on_a_line(level, 0.1), {}, kAlpha));
    return said.headline + " " + said.sentences[0];
  };
  EXPECT_THAT(words(-0.1), HasSubstr("changes its sign with size"));
  EXPECT_THAT(words(-0.1), HasSubstr("The fitted line crosses zero at 2 parameters."));
  EXPECT_THAT(words(-1), Not(HasSubstr("crosses zero")));
}

TEST(LadderLine, EffectsWithoutSpreadAreRefused) {
  std::vector<LadderEffect> effects = on_a_line(-1, 0.1);
  effects[2] = effect_of(4, {0.5, 0.5, 0.5});
  const LadderLine line = fit_line("slow", effects, {}, kAlpha);
  EXPECT_FALSE(line.fit);
  ASSERT_THAT(line.refusals, SizeIs(1));
  EXPECT_THAT(line.refusals[0], HasSubstr("arm 'slow', size 4: 3 pairs with a standard error of 0"));
  effects.resize(2);
  EXPECT_THAT(fit_line("slow", effects, {}, kAlpha).refusals, Contains(HasSubstr("at least 3")));
}

// The file.

constexpr const char* kHead = R"(base = "base.toml"
seeds = [1, 2, 3]

[[arm]]
name = "base"

[[arm]]
name = "other"
set = ["optimizer.lr=1e-3"]

)";

constexpr const char* kLadder = R"([ladder]
held_out = "d"
points = [
  { name = "a", set = ["model.width=8"], steps = 10 },
  { name = "b", set = ["model.width=16"], steps = 20 },
  { name = "c", set = ["model.width=32"], steps = 40, size = 5 },
  { name = "d", steps = 80, size = 9.5 },
]
)";

std::string file_of(const std::string& text) {
  const std::string folder = testing::fresh_folder("ladder_file");
  testing::write_text(folder + "/base.toml", "[run]\nsteps = 16\n");
  testing::write_text(folder + "/ladder.toml", text);
  return folder + "/ladder.toml";
}

std::string refusal_of(const std::string& text) {
  try {
    read_experiment(file_of(text), {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LadderFile, IsReadAndSurvivesTheRecord) {
  const Experiment e = read_experiment(file_of(std::string(kHead) + kLadder), {});
  ASSERT_TRUE(e.ladder);
  ASSERT_THAT(e.ladder->points, SizeIs(4));
  EXPECT_EQ(e.ladder->held_out, "d");
  EXPECT_EQ(e.ladder->points[1].set, std::vector<std::string>{"model.width=16"});
  EXPECT_EQ(e.ladder->points[2].steps, 40);
  EXPECT_EQ(e.ladder->points[3].size, 9.5);
  EXPECT_FALSE(e.ladder->points[0].size);
  const std::string record = study_record_json({e, 2, false});
  EXPECT_EQ(study_record_json(parse_study_record(record, "record")), record);
  const Experiment at = experiment_of_point(e, {e.ladder->points[1], 7, 7, {Axis::kSteps, 20}});
  EXPECT_FALSE(at.ladder);
  EXPECT_EQ(at.arms[1].set, (std::vector<std::string>{"model.width=16", "optimizer.lr=1e-3"}));
  EXPECT_EQ(at.budget.amount, 20);
}

TEST(LadderFile, SaysWhereAndWhatIsWrong) {
  const std::string whole = std::string(kHead) + kLadder;
  const auto without = [&](const std::string& text) { return testing::replaced(whole, text, ""); };
  const struct {
    std::string text, place, says;
  } cases[] = {
      {without("  { name = \"c\", set = [\"model.width=32\"], steps = 40, size = 5 },\n"), "ladder.toml:13:",
       "2 points to fit; a line through fewer than 3 cannot be contradicted. Add points, or do not hold out "
       "'d'"},
      {testing::replaced(whole, "held_out = \"d\"", "held_out = \"x\""),
       "ladder.toml:13:", "held_out names 'x', which is no point; the points are a, b, c, d"},
      {testing::replaced(whole, "\"b\"", "\"a\""), "ladder.toml:15:", "two points are called 'a'"},
      {testing::replaced(whole, "\"b\"", "\"b/c\""),
       "ladder.toml:15:", "point name 'b/c' cannot name a folder"},
      {testing::replaced(whole, "model.width=16", "run.steps=16"),
       "ladder.toml:15:", "write steps = 16 beside set"},
      {testing::replaced(whole, "[1, 2, 3]", "[1, 2]"),
       "ladder.toml:13:", "2 seeds; the weight of a point's effect"},
      {testing::replaced(whole, "seeds", "target = 1\ndecide_by = \"time_to_target\"\nseeds"),
       "ladder.toml:15:", "the difference of final values"},
      {whole + "[sequential]\nmax_seeds = 3\nfirst_look = 2\n",
       "ladder.toml:13:", "[sequential] stops the study"},
      {"base = \"base.toml\"\nseeds = [1, 2, 3]\n"
       "[[factor]]\nname = \"rate\"\nlevels = [{ name = \"low\" }, { name = \"high\", set = { "
       "\"optimizer.lr\" = 1 } }]\n"
       "[[factor]]\nname = \"size\"\nlevels = [{ name = \"s\" }, { name = \"l\", set = { \"data.batch\" = 8 "
       "} }]\n" +
           std::string(kLadder),
       "ladder.toml:11:", "a ladder compares arms, and [[factor]] tables make a factorial study"},
      {whole + "[budget]\nsteps = 3\n", "ladder.toml:13:", "so [budget] says nothing"},
      {testing::replaced(whole, "steps = 20", "size = 1"), "ladder.toml:13:", "a point has no budget"},
      {testing::replaced(whole, "points", "tokens_per_parameter = 1\nsamples_per_parameter = 1\npoints"),
       "ladder.toml:15:", "are two budgets; name one"},
      {testing::replaced(whole, "size = 9.5", "sise = 9.5"), "ladder.toml:17:", "sise"},
      {std::string(kHead) + "[ladder]\npoints = 3\n", "ladder.toml:12:", "points is a list of tables"},
  };
  for (const auto& c : cases) {
    const std::string said = refusal_of(c.text);
    EXPECT_THAT(said, HasSubstr(c.place)) << c.says;
    EXPECT_THAT(said, HasSubstr(c.says));
  }
}

// The studies of the points.

class LadderStage : public ::testing::Test {
 protected:
  /// Final loss by point, arm, exponent of the rate and seed; NAN: the run diverges.
  using Losses = std::function<double(std::size_t point, std::size_t arm, int rate, std::int64_t seed)>;

  void prepare(const std::string& ladder, const Losses& losses, const std::string& more = "") {
    const std::string path = file_of(std::string(kHead) + more + ladder);
    folder_ = fs::path(path).parent_path().string();
    experiment_ = read_experiment(path, {});
    const auto& points = experiment_.ladder->points;
    for (std::size_t p = 0; p < points.size(); ++p) {
      for (std::size_t a = 0; a < experiment_.arms.size(); ++a) {
        for (const int rate : experiment_.tune ? std::vector<int>{1, 2, 3} : std::vector<int>{0}) {
          for (const std::int64_t seed : {1, 2, 3, 101, 102}) {
            if (seed > 100 && !experiment_.tune) continue;
            testing::SyntheticRun run;
            run.seed = seed;
            run.steps = points[p].steps > 0 ? static_cast<int>(points[p].steps) : 16;
            run.eval_every = run.steps;
            run.final_loss = losses(p, a, rate, seed);
            if (rate > 0) run.config = {{"optimizer.lr", fmt::format("1e-{}", rate)}};
            testing::write_run(fmt::format("{}/prepared/{}/{}/{}/{}", folder_, points[p].name,
                                           experiment_.arms[a].name, rate, seed),
                               run);
          }
        }
      }
    }
  }

  StudyOptions options() const {
    StudyOptions o;
    o.folder = folder_ + "/study";
    o.jobs = 4;
    o.program = testing::stand_in(
        folder_,
        "arm=$(basename \"$2\" .toml)\npoint=$(basename $(dirname $(dirname \"$2\")))\nrate=0\n"
        "for a in \"$@\"; do case \"$a\" in tuned.rate=*) rate=\"${a#tuned.rate=}\";; esac; done\n"
        "echo $point $arm $seed >>" +
            folder_ + "/made\necho \"$@\" >>" + folder_ +
            "/words\nn=1; while [ -e \"$dir/$n\" ]; do n=$((n+1)); done\nmkdir -p \"$dir\"\ncp -r \"" +
            folder_ + "/prepared/$point/$arm/$rate/$seed\" \"$dir/$n\"");
    o.measure = [](const Config& run) {
      const std::int64_t width = run.find("model.width")->integer();
      return ModelSize{width * width, 4, 32};
    };
    return o;
  }

  /// Runs made since the last call, by point.
  std::map<std::string, int> made() const {
    std::map<std::string, int> out;
    std::ifstream in(folder_ + "/made");
    std::string arm, seed;
    for (std::string point; in >> point >> arm >> seed;) ++out[point];
    in.close();
    fs::remove(folder_ + "/made");
    return out;
  }

  std::string error_of(const StudyOptions& options) const {
    try {
      run_study(experiment_, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Experiment experiment_;
  std::string folder_;
};

/// The second arm is better by 0.4 at the first point, and by 0.1 less at each further one.
double fading(std::size_t point, std::size_t arm, int, std::int64_t seed) {
  const auto noise = [&](std::uint64_t stream) {
    return testing::normal_deviate(static_cast<std::uint64_t>(seed), 100 * stream + point);
  };
  return 3 - 0.2 * static_cast<double>(point) + 0.05 * noise(1) +
         (arm == 0 ? 0 : -0.4 + 0.1 * static_cast<double>(point) + 0.01 * noise(4));
}

constexpr const char* kFour = R"([ladder]
held_out = "d"
points = [
  { name = "a", set = ["model.width=8"], steps = 10 },
  { name = "b", set = ["model.width=16"], steps = 20 },
  { name = "c", set = ["model.width=32"], steps = 40 },
  { name = "d", set = ["model.width=64"], steps = 80 },
]
)";

TEST_F(LadderStage, FitsTheStudiesOfThePointsAndTestsTheHeldOutOne) {
  prepare(kFour, fading);
  StudyOptions alone = options();
  alone.jobs = 1;  // for times
  const StudyOutcome out = run_study(experiment_, alone);
  ASSERT_EQ(out.exit_status, 0) << closing_text(out);
  EXPECT_EQ(made(), (std::map<std::string, int>{{"a", 6}, {"b", 6}, {"c", 6}, {"d", 6}}));
  ASSERT_THAT(out.ladder->lines, SizeIs(1));
  const LadderLine& line = out.ladder->lines[0];
  EXPECT_EQ(line.trend, Trend::kShrinks) << closing_text(out);
  EXPECT_NEAR(line.fit->slope(), 0.05, 0.01);  // each width has four times the parameters: two doublings
  EXPECT_EQ(line.within, true);
  EXPECT_EQ(out.ladder->points[3].plan.size, 4096);
  const std::string text = closing_text(out);
  EXPECT_THAT(text, HasSubstr("The effect of other shrinks with size"));
  EXPECT_THAT(text, HasSubstr("At d, which was held out (4096 parameters)"));
  EXPECT_THAT(text, HasSubstr("the held-out effect is within the prediction interval"));
  EXPECT_THAT(text, Not(HasSubstr("crosses zero")));  // that is 16 times as far as the greatest size fitted
  // The study of the greatest size is the verdict for programs.
  const json verdict = json::parse(verdict_line(out));
  EXPECT_EQ(verdict["verdict"], "better");
  EXPECT_EQ(verdict["effect"], verdict["ladder"]["points"][3]["effects"][0]["effect"]);
  EXPECT_EQ(verdict["ladder"]["lines"][0]["trend"], "shrinks");
  EXPECT_EQ(verdict["ladder"]["lines"][0]["held_out"]["within"], true);
  double seconds = 0;
  for (const json& point : verdict["ladder"]["points"]) seconds += point["seconds"].get<double>();
  EXPECT_DOUBLE_EQ(verdict["seconds"].get<double>(), seconds);
  // Each point is a study with its own report, and the reports come again from the folder alone.
  const std::string report = testing::read_text_file(out.report_json_path);
  EXPECT_EQ(report, outcome_json(out));
  fs::remove(folder_ + "/study/points/b/report.html");
  const StudyOutcome again = report_study(folder_ + "/study");
  EXPECT_EQ(testing::read_text_file(again.report_json_path), report);
  EXPECT_EQ(again.exit_status, 0);
  EXPECT_TRUE(fs::exists(folder_ + "/study/points/b/report.html"));
  EXPECT_TRUE(fs::exists(folder_ + "/study/csv/ladder.csv"));
  const std::string page = testing::read_text_file(out.report_html_path);
  for (const char* part :
       {"Shrinks with size", "points/c/report.html", "csv/ladder.csv", "held out", "chi-square"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  testing::write_text(TENON_BINARY_DIR "/tests/ab_samples/ladder.html", page);
}

TEST_F(LadderStage, FinishedRunsAreNotRepeatedAndEditedOnesAre) {
  prepare(kFour, fading);
  run_study(experiment_, options());
  made();
  const std::string first = testing::read_text_file(folder_ + "/study/report.json");
  EXPECT_EQ(run_study(experiment_, options()).exit_status, 0);
  EXPECT_TRUE(made().empty());
  EXPECT_EQ(testing::read_text_file(folder_ + "/study/report.json"), first);
  // One run is lost, one point is edited, and one arm everywhere.
  fs::remove(folder_ + "/study/points/a/runs/base/2/1/summary.json");
  experiment_.ladder->points[1].set.push_back("model.depth=3");
  run_study(experiment_, options());
  EXPECT_EQ(made(), (std::map<std::string, int>{{"a", 1}, {"b", 6}}));
  EXPECT_TRUE(fs::exists(folder_ + "/study/points/b/earlier/1/runs/base/1/1/summary.json"));
  experiment_.arms[1].set = {"optimizer.lr=2e-3"};
  run_study(experiment_, options());
  EXPECT_EQ(made(), (std::map<std::string, int>{{"a", 3}, {"b", 3}, {"c", 3}, {"d", 3}}));
  testing::write_text(experiment_.base, "[run]\nsteps = 17\nlog_every = 2\n");
  run_study(experiment_, options());
  EXPECT_EQ(made().at("d"), 6);
}

TEST_F(LadderStage, StepsComeFromTheParameters) {
  EXPECT_EQ(steps_for(20, 1000, 64), 313);
  EXPECT_EQ(steps_for(1e-3, 10, 64), 1);
  prepare(
      "[ladder]\ntokens_per_parameter = 2\npoints = [\n  { name = \"a\", set = [\"model.width=16\"] },\n"
      "  { name = \"b\", set = [\"model.width=8\"] },\n  { name = \"c\", set = [\"model.width=32\"], steps = "
      "16 "
      "},\n]\n",
      fading);
  const StudyOutcome out = run_study(experiment_, options());
  const auto& points = out.ladder->points;
  EXPECT_EQ(points[0].plan.budget.amount, 16);  // 2 * 256 / 32
  EXPECT_EQ(points[1].plan.budget.amount, 4);
  EXPECT_EQ(points[2].plan.budget.amount, 16);
  const std::string words = testing::read_text_file(folder_ + "/words");
  EXPECT_THAT(words, HasSubstr("model.width=8 --set run.steps=4 --set run.seed=1"));
  // The prepared runs of b have 16 steps, which is not its budget.
  EXPECT_EQ(out.exit_status, 1);
  EXPECT_THAT(out.ladder->refusals, Contains(HasSubstr("point 'b': arm 'base', seed 1: consumed 16 steps")));
  EXPECT_THAT(closing_text(out), HasSubstr("No verdict"));
}

TEST_F(LadderStage, RefusesBeforeTheFirstRun) {
  prepare(testing::replaced(kFour, "model.width=16", "model.width=8"), fading);
  EXPECT_THAT(error_of(options()), HasSubstr("ladder.toml:15:"));
  EXPECT_THAT(error_of(options()), HasSubstr("points 'a' and 'b' have the same size, 64 parameters"));
  prepare(kFour, fading);
  StudyOptions o = options();
  o.self_check = true;
  EXPECT_THAT(error_of(o), HasSubstr("--aa"));
  o = options();
  o.restart = true;
  EXPECT_THAT(error_of(o), HasSubstr("--restart"));
  o = options();
  o.family = folder_ + "/family";
  EXPECT_THAT(error_of(o), HasSubstr("leave out --family"));
  o = options();
  o.measure = {};
  EXPECT_THAT(error_of(o), HasSubstr("point 'a' cannot be built, and nothing was started"));
  o = options();
  o.resolve = [](const Config& run) -> Config {
    if (run.find("model.width")->integer() == 64) fail_config("too wide");
    return run;
  };
  EXPECT_THAT(error_of(o),
              HasSubstr("arm 'base' cannot run at point 'd', and nothing was started: too wide"));
  EXPECT_TRUE(made().empty());
}

TEST_F(LadderStage, APointWithoutAVerdictEndsInNone) {
  prepare(kFour, [](std::size_t point, std::size_t arm, int rate, std::int64_t seed) {
    return point == 1 && arm == 1 && seed == 2 ? NAN : fading(point, arm, rate, seed);
  });
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_EQ(out.exit_status, 1);
  EXPECT_TRUE(out.ladder->lines.empty());
  EXPECT_THAT(closing_text(out), HasSubstr("point 'b': arm 'other', seed 2: the run diverged"));
  EXPECT_THAT(testing::read_text_file(out.report_html_path), HasSubstr("the run diverged"));
  // Studies that were not begun are named.
  fs::remove_all(folder_ + "/study/points/d");
  EXPECT_THAT(report_study(folder_ + "/study").ladder->refusals,
              Contains("point 'd': its study was not begun"));
}

TEST_F(LadderStage, ABendIsNotExtrapolated) {
  prepare(kFour, [](std::size_t point, std::size_t arm, int rate, std::int64_t seed) {
    return fading(point, arm, rate, seed) + (point == 1 && arm == 1 ? 0.5 : 0);
  });
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_EQ(out.exit_status, 0);
  EXPECT_EQ(out.ladder->lines[0].trend, Trend::kNotALine);
  EXPECT_THAT(closing_text(out), HasSubstr("the fit does not describe the points (chi-square "));
  EXPECT_THAT(closing_text(out), Not(HasSubstr("prediction interval")));
  EXPECT_THAT(testing::read_text_file(out.report_html_path), HasSubstr("Not a line"));
}

TEST_F(LadderStage, AHeldOutEffectOffTheLineIsOutside) {
  prepare(kFour, [](std::size_t point, std::size_t arm, int rate, std::int64_t seed) {
    return fading(point, arm, rate, seed) + (point == 3 && arm == 1 ? 0.5 : 0);
  });
  const StudyOutcome out = run_study(experiment_, options());
  EXPECT_EQ(out.ladder->lines[0].trend, Trend::kShrinks) << closing_text(out);
  EXPECT_EQ(out.ladder->lines[0].within, false);
  EXPECT_THAT(closing_text(out),
              HasSubstr("outside the prediction interval, so the line does not hold as far"));
}

TEST_F(LadderStage, EveryPointIsTunedByItself) {
  // The best rate falls with size; at any fixed one, an arm would look bad somewhere.
  prepare(
      testing::replaced(kFour, "held_out = \"d\"\n", ""),
      [](std::size_t point, std::size_t arm, int rate, std::int64_t seed) {
        const double off = rate - (point < 2 ? 1.9 : 2.1);
        return fading(point, arm, rate, seed) + off * off;
      },
      "[tune]\nseeds = [101, 102]\n\n[[tune.key]]\nname = \"tuned.rate\"\nvalues = [1, 2, 3]\n\n");
  const StudyOutcome out = run_study(experiment_, options());
  ASSERT_EQ(out.exit_status, 0) << closing_text(out);
  EXPECT_TRUE(out.result.study.tuning);
  EXPECT_EQ(out.ladder->lines[0].trend, Trend::kShrinks);
  EXPECT_THAT(closing_text(out), HasSubstr("at twice the greatest size, and"));
  EXPECT_THAT(closing_text(out), HasSubstr("No point was held out, so that is not tested"));
}

}  // namespace
}  // namespace tenon::ab
